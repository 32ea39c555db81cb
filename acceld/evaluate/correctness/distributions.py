"""Make the inputs that a kernel is tried on. A *variant* names a kind of inputs:

========================  =================================================================================
own, scaled_up, ...       a distribution of :mod:`acceld.workloads`
metamorphic/2-permute     own inputs, changed by the workload's third metamorphic relation
boosted/delta-10          own inputs with the argument ``delta`` times 10
outliers/k-30             own inputs with a few of the innermost vectors of ``k`` times 30
banded/M                  each band of the axis ``M`` has a distribution of its own, all of them hard: see
                          :mod:`acceld.evaluate.correctness.bands`
========================  =================================================================================

Only a workload that refuses ``scaled_up`` has the variants ``boosted`` and ``outliers``.

A variant is refused, with a reason, if the reference is not finite on it, or if honest float32 arithmetic is too
noisy on it to tell right outputs from wrong ones.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from acceld.errors import WorkloadError
from acceld.evaluate.correctness.bands import banded_inputs, banded_variants, is_banded
from acceld.workloads import Workload, make_inputs, metamorphic_pair, supported_distributions
from acceld.workloads.inputs import Room

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OWN = "own"
SPECIAL = "special"
NOISY = 1e-3
"""Relative L2 noise above which a variant or a band is not used. Variants that a workload declares are always used."""
_BOOST = 10
_OUTLIER, _OUTLIERS = 30, 1 / 1024
"""Factor by which outliers are multiplied, and the share of vectors that become outliers. With a few outliers among its
logits, a softmax overflows unless it first subtracts the greatest logit of the whole row.
"""


def metamorphic_variants(workload: Workload) -> list[str]:
    """Return the names of the variants that a workload's metamorphic relations give."""
    return [f"metamorphic/{number}-{check.kind}" for number, check in enumerate(workload.metamorphic)]


def boosted_variants(workload: Workload) -> list[str]:
    """Return the names of the variants that scale a single argument.

    Only a workload that refuses ``scaled_up``, in which all arguments are scaled, has such variants.
    """
    state = workload.distributions.get("scaled_up")
    if state is None or state.declared or workload.sample is not None:
        return []
    return [
        variant
        for argument in workload.arguments
        if argument.distribution is not None and not argument.distribution.fixed and argument.dtype.startswith("float")
        for variant in (f"boosted/{argument.name}-{_BOOST}", f"outliers/{argument.name}-{_OUTLIER}")
    ]


def is_boosted(variant: str) -> bool:
    """Tell whether a variant scales one argument.

    A boosted variant is left out where float32 arithmetic is too noisy on it.
    """
    return variant.startswith(("boosted/", "outliers/"))


def strict_variants(workload: Workload) -> list[str]:
    """Return the names of all variants of the strict gate except ``own``."""
    named = [name for name in supported_distributions(workload) if name != OWN]
    return [*banded_variants(workload), *named, *metamorphic_variants(workload), *boosted_variants(workload)]


def hidden_variants(workload: Workload, *, expensive: bool = False) -> list[str]:
    """Return the variants on which a kernel is tried at a hidden shape: the distributions that the workload declares.

    If the reference is ``expensive``, return its own distribution and one of the others, chosen at random.
    """
    own, *others = supported_distributions(workload)
    return [own, *secrets.SystemRandom().sample(others, min(1, len(others)))] if expensive else [own, *others]


def inputs_of(workload: Workload, seed: int, variant: str, room: Room | None = None) -> list[Any]:
    """Return the inputs of a variant, in the reference's layout.

    ``room`` gives the array into which an input is written, which saves a copy. Raise WorkloadError for an
    unknown variant.
    """
    kind, _, rest = variant.partition("/")
    if kind == "metamorphic":
        return _related(workload, seed, rest)
    if is_banded(variant):
        return banded_inputs(workload, make_inputs(workload, seed, OWN), variant, seed)
    if is_boosted(variant):
        return _boosted(workload, seed, rest, outliers=kind == "outliers")
    return make_inputs(workload, seed, variant, room=room)


def generator(seed: int) -> np.random.Generator:
    """Return the random generator that changes inputs, for one seed."""
    import numpy as np

    return np.random.default_rng([seed % 2**63, 7])


def _related(workload: Workload, seed: int, rest: str) -> list[Any]:
    """Return inputs that a metamorphic relation of the workload makes. ``rest`` names the relation as
    ``NUMBER-KIND``.
    """
    number = rest.partition("-")[0]
    if not number.isdigit() or int(number) >= len(workload.metamorphic):
        raise WorkloadError(
            f"workload {workload.name!r} has no metamorphic relation {rest!r}; it declares {len(workload.metamorphic)}"
        )
    base = make_inputs(workload, seed, OWN)
    return metamorphic_pair(workload, workload.metamorphic[int(number)], base, generator(seed)).inputs


def _boosted(workload: Workload, seed: int, rest: str, *, outliers: bool) -> list[Any]:
    """Return the workload's inputs with one argument multiplied by a factor; with ``outliers``, only a few of the
    argument's vectors are multiplied.

    ``rest`` names the argument and the factor, as ``ARGUMENT-FACTOR``.
    """
    name, _, factor = rest.rpartition("-")
    inputs = make_inputs(workload, seed, OWN)
    for position, argument in enumerate(workload.arguments):
        if argument.name == name:
            array = inputs[position]
            chosen = _outliers(array, generator(seed)) if outliers else ...
            array = array.copy()
            array[chosen] = (array[chosen] * float(factor)).astype(array.dtype)
            inputs[position] = array
            return inputs
    raise WorkloadError(
        f"workload {workload.name!r} has no argument {name!r} to multiply",
        hint=f"in [[metamorphic]], name one of: {', '.join(one.name for one in workload.arguments)}",
    )


def _outliers(array: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[np.intp], ...]:
    """Return the index of the innermost vectors that become outliers, at least one.

    In a one-dimensional array, single elements become outliers.
    """
    import numpy as np

    outer = array.shape[:-1] or array.shape
    count = int(np.prod(outer))
    return np.unravel_index(rng.choice(count, max(1, round(count * _OUTLIERS)), replace=False), outer)


def own_inputs_refused(workload: Workload, reason: str) -> WorkloadError:
    """Return the error that says why a kernel can not be checked on the workload's own inputs, and what to change."""
    return WorkloadError(
        f"workload {workload.name!r} can not be checked on its own inputs: {reason}",
        hint="In get_inputs of the reference, draw inputs as your model has them, then repeat the command.",
    )
