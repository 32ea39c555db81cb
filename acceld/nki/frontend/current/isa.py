"""Provide ``nki.isa``: one function for each instruction. The first argument of most functions is the
destination.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.names import EngineName, NcVersion, get_nc_version
from acceld.nki.frontend.core.signatures import checked, defined_in
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.current import arithmetic, folds, moves, positions, products, registers
from acceld.nki.frontend.current.lifetimes import DEPENDS_ON, options_of
from acceld.nki.frontend.current.names import DgeMode, DmaEngine, MatmulPerfMode, OobMode, ReduceCommand
from acceld.nki.frontend.current.operands import check_options
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.frontend.current.tensor import Register

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    get_nc_version,
    *defined_in(arithmetic, folds, moves, positions, products, registers),
)
"""The functions of ``nki.isa`` that the simulator has, all documented for ``nki`` 0.6 or 0.7."""


class NkiInstruction:
    """The result of a call of ``nki.isa``, with which a kernel can ask for an order of instructions.

    The order that the kernel asks for has no effect here. Program order and data decide which instruction waits for
    which.
    """

    def depends_on(self, *producers: object) -> NkiInstruction:
        """Return this instruction, and add a notice to the program. The notice says that the wait for ``producers``
        is not part of a predicted latency.
        """
        current().session.need("depends_on of an instruction", DEPENDS_ON)
        for one in producers:
            if not isinstance(one, NkiInstruction):
                refuse(
                    "operand_type",
                    f"depends_on got {type(one).__name__}, and takes what calls of nki.isa return",
                    "keep the result of the call to wait for: first = nisa.tensor_copy(...)",
                )
        current().notice("depends_on adds no wait to the predicted latency")
        return self


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that checks the arguments of a call, and that the trace's version of ``nki``
    has them.

    The wrapper returns a NkiInstruction where ``function`` returns None.
    """
    guarded = checked("nisa", function)
    handle = NkiInstruction()
    late = options_of(function.__name__)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_options(f"nisa.{function.__name__}", late, kwargs)
        value = guarded(*args, **kwargs)
        if isinstance(kwargs.get("name"), str):
            current_trace().name_once(kwargs["name"], f"nisa.{function.__name__}")
        return handle if value is None else value

    return call


# The functions are wrapped once in each process, because reading their signatures takes longer than a small trace.
_FUNCTIONS: Mapping[str, object] = MappingProxyType(
    {function.__name__: _instruction(function) for function in FUNCTIONS}
)


def namespace() -> dict[str, object]:
    """Return the names of ``nki.isa`` that the simulator has, with their values."""
    enums = {
        "reduce_cmd": ReduceCommand,
        "oob_mode": OobMode,
        "dge_mode": DgeMode,
        "engine": EngineName,
        "nc_version": NcVersion,
        "dma_engine": DmaEngine,
        "matmul_perf_mode": MatmulPerfMode,
        "tensor_engine": EngineName.tensor,
        "vector_engine": EngineName.vector,
        "scalar_engine": EngineName.scalar,
        "gpsimd_engine": EngineName.gpsimd,
        "unknown_engine": EngineName.unknown,
    }
    classes = {"VirtualRegister": Register, "NkiScalar": Register, "NkiInstruction": NkiInstruction}
    return {**_FUNCTIONS, **enums, **classes}
