"""Measure coverage of nki-samples: the kernels that trace and agree with our references.

The kernels come from checkouts of aws-neuron/nki-samples and are not part of this project. Arguments, references and
tolerances are ours. A kernel that needs Python objects as arguments gets a short driver of ours.
"""

from scripts.evidence.simbench.samples.tables import CHECKOUTS, SKIPPED
from scripts.evidence.simbench.samples.trials import Case, Result, results

__all__ = ["CHECKOUTS", "SKIPPED", "Case", "Result", "results"]
