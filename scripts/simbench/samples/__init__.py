"""Coverage of nki-samples: which of its kernels trace, and agree with references of ours.

The kernels come from checkouts of aws-neuron/nki-samples and are no part of this project; arguments, references and
tolerances are ours. A kernel that needs Python objects as arguments gets a short driver of ours.
"""

from scripts.simbench.samples.tables import CHECKOUTS, SKIPPED
from scripts.simbench.samples.trials import Case, Result, results

__all__ = ["CHECKOUTS", "SKIPPED", "Case", "Result", "results"]
