"""Define workloads: operators with fixed shapes, input makers, a numpy reference, a tolerance, declared work and
baselines.

A workload is a folder ``workloads/<family>/<name>/`` with ``workload.toml``, ``reference.py`` and one kernel file per
API; docs/workloads.md describes the format. Importing this package loads neither numpy nor any workload; the reference
of a workload is imported only by :func:`load_reference`, :func:`make_inputs` and their callers.
"""

from acceld.workloads.checks import MetamorphicPair, metamorphic_pair
from acceld.workloads.discovery import find_workloads, workload
from acceld.workloads.inputs import PAPER_SEEDS, make_inputs, supported_distributions
from acceld.workloads.loading import address_of, every_shape, hidden_shapes, load_unchanged, load_workload
from acceld.workloads.oracle import (
    Reference,
    kernel_inputs,
    load_reference,
    outputs_in_reference_layout,
    reference_outputs,
)
from acceld.workloads.records import (
    BASELINE_FILES,
    DISTRIBUTIONS,
    Anchor,
    Argument,
    Arguments,
    ArraySpec,
    DeclaredWork,
    Definition,
    Distribution,
    DistributionState,
    Metamorphic,
    Output,
    Precision,
    Variant,
    WeightedShape,
    Workload,
    shape_text,
)

__all__ = [
    "BASELINE_FILES",
    "DISTRIBUTIONS",
    "PAPER_SEEDS",
    "Anchor",
    "Argument",
    "Arguments",
    "ArraySpec",
    "DeclaredWork",
    "Definition",
    "Distribution",
    "DistributionState",
    "Metamorphic",
    "MetamorphicPair",
    "Output",
    "Precision",
    "Reference",
    "Variant",
    "WeightedShape",
    "Workload",
    "address_of",
    "every_shape",
    "find_workloads",
    "hidden_shapes",
    "kernel_inputs",
    "load_reference",
    "load_unchanged",
    "load_workload",
    "make_inputs",
    "metamorphic_pair",
    "outputs_in_reference_layout",
    "reference_outputs",
    "shape_text",
    "supported_distributions",
    "workload",
]
