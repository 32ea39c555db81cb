"""Launch kernels while tracing: ``nki.jit``, launch grids, arguments, results.

A launch runs the kernel once for each *program* of its grid.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from acceld.nki.errors import LegalityError, LimitExceeded
from acceld.nki.frontend.core.context import is_tracing, refuse
from acceld.nki.frontend.core.index import loop_index
from acceld.nki.frontend.core.memory import HBM
from acceld.nki.frontend.core.placement import declare
from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.session import LaunchedWhileLoading, call_site
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.launch_order import meeting
from acceld.nki.ir.program import LoopKind, Program, Role, Space


class Kernel:
    """A kernel: a function under ``nki.jit``, ``nki.baremetal`` or another launcher. ``func`` is the function itself,
    as in the Neuron packages.

    A call inside a trace is traced as part of the caller. A call while the file loads ends the loading.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.func = function
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            raise LaunchedWhileLoading
        return self.func(*args, **kwargs)

    def with_schedule(self, schedule: object) -> Kernel:
        """Return the kernel unchanged, because a schedule has no effect here.

        Another order of instructions changes no value, and the performance model keeps the program's own order.
        """
        return self

    def __getitem__(self, grid: object) -> Callable[..., Any]:
        sizes = grid if isinstance(grid, tuple) else (grid,)

        def launch(*args: Any, **kwargs: Any) -> Any:
            if not is_tracing():
                raise LaunchedWhileLoading
            return launched(self.func, tuple(operator.index(n) for n in sizes), args, kwargs)

        return launch


class Launcher:
    """A decorator such as ``nki.jit``, used with or without options. The options are passed to the function ``check``."""

    def __init__(self, name: str, check: Callable[[Mapping[str, object]], None] = lambda options: None) -> None:
        self.__name__ = name
        self._check = check

    def __call__(self, function: object = None, **options: Any) -> Any:
        self._check(options)
        if function is None or isinstance(function, str):
            return lambda decorated: self(decorated)
        return function if isinstance(function, Kernel) else Kernel(function)  # type: ignore[arg-type]  # any callable


def launched(function: Callable[..., Any], grid: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``function`` for every program of the launch grid ``grid``, and return the result of the launch.

    The body is traced once for all programs. If the body needs the number of its program while tracing, it is traced
    once for each program.
    """
    trace = current()
    site, line = call_site(), trace.line()
    outer_ids, outer_grid = trace.program_ids, trace.grid
    # Programs that a kernel launches itself share the kernel's cores, so they run one after another, in any order.
    asked = grid == trace.session.grid or trace.session.lnc > 1
    kind = LoopKind.SPMD if asked else LoopKind.AFFINE
    trace.grid = grid
    ids: list[object] = []
    loops: list[int] = []
    if site in trace.unroll:
        if prod(grid) > 4096:
            raise LimitExceeded(
                f"the launch grid has {prod(grid)} programs; a kernel that needs its program number while tracing may have at most 4096: launch fewer programs, with loops inside",
                rule="grid_limit",
                line=line,
            )
        value = None
        begins = [trace.builder.length]
        for number in range(prod(grid)):
            trace.program_ids = tuple(int(i) for i in np.unravel_index(number, grid))
            if number:
                trace.next_program()
            value = one_result(value, function(*args, **kwargs))
            begins.append(trace.builder.length)
        _check_order(trace, begins)
    else:
        for axis, size in enumerate(grid):
            loops.append(trace.open(f"program_id({axis})", size, kind, site, line))
            trace.spmd_loops.add(loops[-1])
            ids.append(loop_index(loops[-1]))
        trace.program_ids = tuple(ids)
        value = function(*args, **kwargs)
        for loop in reversed(loops):
            trace.close(loop)
    trace.program_ids, trace.grid = outer_ids, outer_grid
    return value


def _check_order(trace: Trace, begins: Sequence[int]) -> None:
    """Raise LegalityError if one program of a launch uses what another program of the launch writes, because programs
    have no order.

    ``begins`` has positions in the body of the open loop: where the instructions of each program begin, and where
    those of the last program end.
    """
    buffers = trace.builder.buffers
    found = meeting([trace.builder.part(*ends) for ends in pairwise(begins)], buffers, trace.trips)
    if found is not None:
        use, write = found
        raise LegalityError(
            f"two programs of a launch use the same elements of {buffers[use.access.buffer].name or 'a tensor'}, which line "
            f"{write.instruction.line} writes: programs of a launch have no order",
            rule="affine_order",
            line=use.instruction.line,
            hint="let each program use elements of its own, or launch another kernel for what follows",
        )


def one_result(value: object, other: object) -> object:
    """Return the result of a launch in which two programs returned ``value`` and ``other``.

    Raise LegalityError if both programs return tensors and these differ, because the result is then not defined.
    """
    if value is None or other is None:
        return value if other is None else other
    first, second = (
        [
            one.access.buffer
            for one in (value if isinstance(value, tuple | list) else (value,))
            if isinstance(one, Tensor)
        ]
        for value in (value, other)
    )
    if first != second:
        refuse(
            "kernel_result",
            "the programs of a launch return different tensors",
            "return the same tensors of nl.shared_hbm from each program",
        )
    return other


def bind(function: Any, values: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments of ``function``: a tuple of the positional arguments, and a dict of the arguments by name.

    An argument is positional only if it can not be given by name.
    """
    positional: list[object] = []
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function written in C may have no signature
        return tuple(values.values()), {}
    variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
    keyword: dict[str, object] = {}
    for name, value in values.items():
        kind = parameters[name].kind if name in parameters else inspect.Parameter.VAR_POSITIONAL
        by_name = kind is inspect.Parameter.KEYWORD_ONLY or (
            kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and not variadic
        )
        if by_name or (name not in parameters and not variadic):
            keyword[name] = value
        else:
            positional.append(value)
    return tuple(positional), keyword


def finish_outputs(trace: Trace, value: object) -> tuple[int, ...]:
    """Return the ids of the buffers that are the kernel's results: the buffers that the kernel returns, or else the
    inputs that it wrote.

    Raise LegalityError if there is no result, or if a result is not a whole tensor in HBM.
    """
    line = trace.session.last_line
    written = sorted(trace.written_inputs)
    outputs: list[int] = []
    if value is not None:
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, Kernel):
                raise LegalityError(
                    f"the function returns the kernel {one.__name__!r} and is not a kernel itself",
                    rule="kernel_result",
                    line=line,
                    hint="assign its result to a name at the end of the file, and pass that name as entry",
                )
            if not isinstance(one, Tensor) or one.space is not HBM.space:
                raise LegalityError(
                    f"the kernel returns {one!r}; a result must be a tensor in nl.shared_hbm",
                    rule="kernel_result",
                    line=line,
                    hint="store the tile to a tensor declared with buffer=nl.shared_hbm, and return that tensor",
                )
            number = one.access.buffer
            if one.access.elements != one.declared.elements:
                raise LegalityError(
                    f"the kernel returns a part of {one.label}: return the whole tensor",
                    rule="kernel_result",
                    line=line,
                )
            if one.declared.role is Role.SCRATCH:
                outer = None if one.shape == one.declared.shape else one.shape
                trace.builder.change_buffer(number, role=Role.OUTPUT, scope=(), argument_shape=outer)
            elif one.declared.role is Role.CONSTANT:
                raise LegalityError(
                    "the kernel returns a constant, which can not be a result",
                    rule="kernel_result",
                    line=line,
                    hint="store the result to a tensor declared with buffer=nl.shared_hbm, and return that tensor",
                )
            outputs.append(number)
        unreturned = [number for number in written if number not in outputs]
        if unreturned:
            label = trace.builder.buffers[unreturned[0]].name
            trace.builder.notice(line, f"the kernel writes its argument {label!r} without returning it")
    else:
        outputs = written
    if not outputs:
        raise LegalityError(
            "the kernel has no result: it returns nothing and stores to none of its arguments",
            rule="kernel_result",
            line=line,
            hint="return the tensor declared with buffer=nl.shared_hbm",
        )
    for number in written:
        trace.builder.change_buffer(number, written_input=True)
    return tuple(outputs)


def declared(trace: Trace, arguments: Mapping[str, object]) -> tuple[dict[str, object], tuple[int, ...]]:
    """Declare a tensor in HBM for each argument that is a TensorSpec. Return (values of all arguments by name, with
    these tensors in place of the specs; ids of the tensors' buffers).
    """
    values = dict(arguments)
    inputs: list[int] = []
    for name, argument in arguments.items():
        if isinstance(argument, TensorSpec):
            site, role = ("argument", name, 0, 0), Role.INPUT
            tensor = declare(
                trace, argument.shape, argument.dtype, Space.HBM, name=name, role=role, scope=(), site=site
            )
            inputs.append(tensor.access.buffer)
            values[name] = tensor
    return values, tuple(inputs)


def finished(trace: Trace, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Program:
    """Return the traced Program. ``inputs`` and ``outputs`` are the ids of the buffers of the kernel's arguments
    and results.
    """
    trace.check_closed()
    session = trace.session
    return trace.builder.finish(
        api=session.api,
        chip=session.chip,
        entry=session.entry,
        inputs=inputs,
        outputs=outputs,
        grid=session.grid,
        lnc=session.lnc,
    )
