"""Translate the names that kernels give to operations and engines, such as ``nl.add``, ``np.max`` or
``nisa.vector_engine``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from acceld.errors import nearest_of
from acceld.nki.frontend.core.context import current, refuse
from acceld.nki.ir.operations import ACTIVATION_FUNCTIONS, ALU_OPS, LEGACY_ONLY, NO_ACTIVATION, REDUCE_OPS
from acceld.nki.ir.program import Engine

ALU_ALIASES = {
    "maximum": "max",
    "minimum": "min",
    "amax": "max",
    "amin": "min",
    "fmax": "max",
    "fmin": "min",
    "sum": "add",
    "prod": "multiply",
    "all": "logical_and",
    "any": "logical_or",
    "true_divide": "divide",
    "absolute": "abs",
    "remainder": "mod",
    "float_power": "power",
}
ACTIVATION_ALIASES = {
    "absolute": "abs",
    "bypass": "identity",
    "relu_": "relu",
    "arctan": "arctan",
    "copyto": "copy",
    "gelu_apprx_tanh": "gelu_apprx_tanh",
}


WITHOUT = {
    "divide": "multiply by nisa.reciprocal (or nl.reciprocal) of the divisor",
    **dict.fromkeys(
        ("mod", "fmod"),
        "subtract divisor * whole quotient: multiply by the divisor's reciprocal, and round by a copy to nl.int32; a "
        "remainder by a power of two is nl.bitwise_and of integers",
    ),
    "floor_divide": "multiply by nl.reciprocal of the divisor, and round by a copy to nl.int32; a quotient by a power of two "
    "is nl.right_shift of integers",
}
"""Advice for an operation that no engine has: what to write in ``nki``, by operation."""


class EngineName(IntEnum):
    """The engines as kernels name them: ``nisa.engine``."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    vector = 5
    sync = 6
    dma = 4


class ReduceCommand(IntEnum):
    """The commands to an engine's accumulators: ``nisa.reduce_cmd``."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


ENGINES = {
    EngineName.unknown: Engine.UNKNOWN,
    EngineName.tensor: Engine.TENSOR,
    EngineName.scalar: Engine.SCALAR,
    EngineName.gpsimd: Engine.GPSIMD,
    EngineName.vector: Engine.VECTOR,
    EngineName.sync: Engine.SYNC,
    EngineName.dma: Engine.DMA,
}


def engine_of(value: object) -> Engine:
    """Return the engine that an ``engine=`` argument names; UNKNOWN for None. Raise LegalityError for any other
    value.
    """
    if value is None:
        return Engine.UNKNOWN
    if isinstance(value, EngineName):
        return ENGINES[value]
    refuse("engine", f"{value!r} is not an engine", "use nisa.vector_engine")


def _called(op: object) -> str:
    """Return the name of the operation in an ``op=`` argument, which is a text or a function such as ``nl.add``."""
    return op if isinstance(op, str) else str(getattr(op, "__name__", op))


def alu_op(op: object) -> str:
    """Return the name in Programs of the ALU operation in an ``op=`` argument, such as ``add`` for ``nl.add``.

    Raise LegalityError for an operation that the engines of this API lack.
    """
    name = _called(op)
    name = ALU_ALIASES.get(name, name)
    legacy = current().session.api == "nki_legacy"
    if name in LEGACY_ONLY and not legacy:
        refuse("alu_op", f"no engine has {name}: NKI 0.3 and later do not compile it", WITHOUT[name])
    known = ALU_OPS - {"reciprocal"} if legacy else ALU_OPS - LEGACY_ONLY
    if name not in known:
        refuse("alu_op", f"{_called(op)} is not an operation of the vector engine", nearest_of(name, known))
    return name


def reduce_op(op: object) -> str:
    """Return the name in Programs of a reduction's operation, such as ``max`` for ``nl.max``. Raise LegalityError if
    ``op`` is not a reduction.
    """
    name = alu_op(op)
    if name not in REDUCE_OPS:
        refuse("alu_op", f"{_called(op)} is not a reduction", "use add, max, min or multiply")
    return name


def activation_function(op: object) -> str:
    """Return the name in Programs of the activation function in an ``op=`` argument, such as ``exp`` for
    ``nl.exp``.

    Raise LegalityError for a function that the scalar engine lacks.
    """
    name = _called(op)
    name = ACTIVATION_ALIASES.get(name, name)
    if name in NO_ACTIVATION and current().session.api == "nki":
        refuse(
            "activation_function",
            f"{name} is not in NKI's table of activation functions (0.6 and 0.7)",
            without(name),
        )
    if name not in ACTIVATION_FUNCTIONS:
        refuse(
            "activation_function",
            f"{_called(op)} is not a function of the scalar engine",
            nearest_of(
                name, ACTIVATION_FUNCTIONS - NO_ACTIVATION if current().session.api == "nki" else ACTIVATION_FUNCTIONS
            ),
        )
    return name


def without(name: str) -> str:
    """Return what to write in ``nki`` in place of the operation ``name``, which no engine has; "" if an engine may have it."""
    name = ALU_ALIASES.get(name, name)
    if name in NO_ACTIVATION:
        return f"use {_IN_PLACE_OF.get(name, f'the function nl.{name}, which returns a new tile')}"
    return WITHOUT.get(name, "")


_IN_PLACE_OF = {
    "negative": "scale=-1.0 with nl.copy, or nisa.tensor_scalar with nl.multiply by -1.0",
    "invert": "nisa.tensor_scalar with nl.invert",
    "logical_not": "nisa.tensor_scalar with nl.equal to 0",
}
"""Advice for an activation function that only the legacy API has: what to write in ``nki``, by function."""


class NcVersion(IntEnum):
    """The generations of NeuronCores as kernels name them: ``nisa.nc_version``."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


def get_nc_version(**kwargs: Any) -> NcVersion:
    """Return the generation of the chip that the kernel is traced for: ``nisa.get_nc_version``."""
    return NcVersion(current().chip.generation)
