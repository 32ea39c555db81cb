"""Match ``--arg`` and ``--scalar`` of ``acceld profile`` with the kernel's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from acceld import drafts
from acceld.errors import UsageError, did_you_mean
from acceld.model import Kernel
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.entry import find_entry
from acceld.parsing import functions_of, parse
from acceld.workloads import ArraySpec

Value = ArraySpec | float | int | bool
BOOLEANS = {"true": True, "false": False}


def bare_arguments(kernel: Kernel, arrays: Sequence[str], scalars: Sequence[str]) -> tuple[Value, ...]:
    """Return the kernel's arguments. Named values go by name, other arrays to the remaining parameters in order.

    A parameter without a value between two given ones takes its default if that is a number. UsageError for an unknown
    name, a name given twice, and a parameter that gets no value.
    """
    named: dict[str, Value] = {}
    unnamed: list[Value] = []
    for name, value in (*map(_array, arrays), *map(_scalar, scalars)):
        if name in named:
            raise UsageError(f"argument {name!r} is given twice")
        if name:
            named[name] = value
        else:
            unnamed.append(value)
    parameters = _parameters(kernel)
    if parameters is None:  # a call makes the function: its parameters are known only to a trace
        return (*unnamed, *named.values())
    for name in named:
        if name not in parameters:
            listed = ", ".join(parameters) or "none"
            near = did_you_mean(name, parameters)
            raise UsageError(f"the kernel has no parameter {name!r}", hint=f"its parameters: {listed}. {near}".strip())
    waiting = iter(unnamed)
    placed = {name: named[name] if name in named else next(waiting, None) for name in parameters}
    last = max((place for place, value in enumerate(placed.values()) if value is not None), default=-1)
    values = [
        value if value is not None else _default(name, parameters[name])
        for name, value in list(placed.items())[: last + 1]
    ]
    return (*values, *waiting)


def _array(text: str) -> tuple[str, Value]:
    draft = drafts.parse_argument(text, 0)
    return (draft.name if "=" in text else ""), ArraySpec(draft.shape, draft.dtype)


def _scalar(text: str) -> tuple[str, Value]:
    name, _, value = text.partition("=")
    if name and value.lower() in BOOLEANS:
        return name, BOOLEANS[value.lower()]
    draft = drafts.parse_scalar(text)
    assert draft.value is not None
    return draft.name, draft.value


def _parameters(kernel: Kernel) -> dict[str, ast.expr | None] | None:
    """Return the kernel function's parameters, each with its default's expression; None if no ``def`` shows them."""
    try:
        name = find_entry(kernel.text, kernel.entry or None)
    except (UsageError, KernelFailure):  # tracing reports what is wrong with the file
        return None
    found = functions_of(parse(kernel.text).body).get(name)
    return dict(_declared(found.args)) if found is not None and found.args.vararg is None else None


def _declared(declared: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    positional = [*declared.posonlyargs, *declared.args]
    without = len(positional) - len(declared.defaults)
    for place, one in enumerate(positional):
        yield one.arg, declared.defaults[place - without] if place >= without else None


def _default(name: str, default: ast.expr | None) -> Value:
    try:
        value = ast.literal_eval(default) if default is not None else None
    except ValueError:  # an expression, not a literal
        value = None
    if isinstance(value, bool | int | float):
        return value
    raise UsageError(
        f"parameter {name!r} of the kernel has no value, and one after it has",
        hint=f"give --arg {name}=SHAPE:DTYPE or --scalar {name}=NUMBER",
    )
