"""Measure coverage of nki-samples: which kernels can be traced and agree with acceld's own references.

The kernels come from checkouts of aws-neuron/nki-samples and are not part of this project. Arguments,
references and tolerances are acceld's. A kernel that takes Python objects is called by a short driver of
acceld.
"""

from scripts.evidence.simbench.samples.tables import CHECKOUTS, SKIPPED
from scripts.evidence.simbench.samples.trials import Case, Result, results

__all__ = ["CHECKOUTS", "SKIPPED", "Case", "Result", "results"]
