"""Match the arguments that a person or an agent describes with the parameters of a kernel or of ``forward``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from acceld import drafts
from acceld.drafts import DraftArgument
from acceld.errors import UsageError, did_you_mean
from acceld.model import Kernel
from acceld.nki.entry import find_entry
from acceld.nki.errors import KernelFailure
from acceld.parsing import functions_of, parse
from acceld.workloads import ArraySpec

Value = ArraySpec | float | int | bool
BOOLEANS = {"true": True, "false": False}


def bare_arguments(kernel: Kernel, arrays: Sequence[str], scalars: Sequence[str]) -> tuple[Value, ...]:
    """Return the values of the kernel's arguments, in the order of its parameters, from the texts of the
    options.

    A value with a name goes to the parameter of that name. Arrays without a name go to the remaining parameters
    in order. A parameter without a value that stands before one with a value takes its default, which must be a
    number. Raise UsageError for an unknown name, for a name that is given twice, and for a parameter that
    remains without a value.
    """
    named: dict[str, Value] = {}
    unnamed: list[Value] = []
    for name, value in (*map(_array, arrays), *map(_scalar, scalars)):
        if name in named:
            raise UsageError(f"argument {name!r} is given twice", hint=f"give {name} by --arg or by --scalar, once")
        if name:
            named[name] = value
        else:
            unnamed.append(value)
    parameters = _parameters(kernel)
    if parameters is None:  # the kernel is made by a call, so only a trace knows its parameters
        return (*unnamed, *named.values())
    for name in named:
        _check_name(name, _of(kernel), parameters)
    waiting = iter(unnamed)
    placed = {name: named[name] if name in named else next(waiting, None) for name in parameters}
    last = max((place for place, value in enumerate(placed.values()) if value is not None), default=-1)
    values = [
        value if value is not None else _default(name, parameters[name])
        for name, value in list(placed.items())[: last + 1]
    ]
    return (*values, *waiting)


def by_signature(kernel: Kernel, given: Sequence[DraftArgument]) -> list[DraftArgument]:
    """Return the drafted arguments in the order of the kernel's parameters, with the parameters' names.

    Arguments without a name go to the remaining parameters in order. A parameter without an argument that stands before
    one with an argument takes its default, which must be a number. Raise UsageError for an unknown name, for more
    arguments than parameters, and for a parameter that has neither a value nor a default.
    """
    parameters = _parameters(kernel)
    if parameters is None:  # the kernel is made by a call, so only a trace knows its parameters
        return list(given)
    return in_order(given, parameters, _of(kernel), draws=False)


def by_forward(reference: Path, given: Sequence[DraftArgument]) -> list[DraftArgument]:
    """Return the drafted arguments in the order of the parameters of ``forward``, with the parameters' names.

    Arguments without a name go to the remaining parameters in order. A file with ``get_inputs`` needs no arguments: the
    last arguments may be left out. Raise UsageError for an unknown name, for more arguments than
    parameters, and for a parameter without a value. A file whose ``forward`` is not a plain function passes: running the
    reference reports its fault.
    """
    functions = _functions(reference)
    forward = functions.get("forward")
    if not given or forward is None or forward.args.vararg is not None:
        return list(given)
    return in_order(given, dict(declared(forward.args)), f"forward in {reference}", draws="get_inputs" in functions)


def in_order(
    given: Sequence[DraftArgument], parameters: Mapping[str, ast.expr | None], subject: str, *, draws: bool
) -> list[DraftArgument]:
    """Return the drafted arguments in the order of ``parameters``, which has the default of each parameter by name.

    Arguments without a name go to the remaining parameters in order. ``draws`` is True if parameters may have no argument.
    ``subject`` names the function in errors. Raise UsageError for an unknown name, for more arguments than parameters, and
    for a parameter without a value; if ``draws``, only for one that stands before a parameter with a value.
    """
    named = {one.name: one for place, one in enumerate(given) if one.name != f"arg{place}" or one.name in parameters}
    unnamed = [one for one in given if one.name not in named]
    if len(named) + len(unnamed) < len(given):
        twice = next(name for name in named if [one.name for one in given].count(name) > 1)
        raise UsageError(f"argument {twice!r} is given twice", hint=f"give {twice} by --arg or by --scalar, once")
    for name in named:
        _check_name(name, subject, parameters)
    waiting = iter(unnamed)
    placed = {name: named[name] if name in named else next(waiting, None) for name in parameters}
    if any(True for _ in waiting):
        raise UsageError(
            f"{len(given)} arguments are described, and {subject} has {len(parameters)} parameters: {', '.join(parameters)}",
            hint="leave out the arguments beyond these parameters, or name each argument: --arg NAME=SHAPE:DTYPE",
        )
    missing = [name for name, one in placed.items() if one is None and parameters[name] is None]
    if missing and not draws:
        raise UsageError(
            f"{subject} has the parameter{'s' if len(missing) > 1 else ''} {', '.join(missing)}, which no argument describes",
            hint=f"give --arg {missing[0]}=SHAPE:DTYPE for an array, or --scalar {missing[0]}=NUMBER",
        )
    last = max((place for place, one in enumerate(placed.values()) if one is not None), default=0)
    gap = next((name for name, one in list(placed.items())[:last] if one is None), None)
    if draws and gap:
        raise UsageError(
            f"{subject} has the parameter {gap} before a described one, and no argument describes {gap}",
            hint=f"give --arg {gap}=SHAPE:DTYPE or --scalar {gap}=NUMBER too, or leave out every --arg and --scalar",
        )
    return [
        replace(one, name=name) if one is not None else DraftArgument(name, value=_default(name, parameters[name]))
        for place, (name, one) in enumerate(placed.items())
        if one is not None or place < last
    ]


def check_order(kernel: Kernel, reference: Path) -> None:
    """Check that a kernel takes the parameters of ``forward`` in the order of ``forward``, because both are called by position.

    Raise UsageError if both have the same names in another order, or if the kernel takes fewer or more parameters. A file
    that can not be read passes: running the reference reports its fault.
    """
    functions = _functions(reference)
    forward, taken = functions.get("forward"), _parameters(kernel)
    if forward is None or taken is None:
        return
    expected = dict(declared(forward.args))
    own, known = list(taken), list(expected)
    fewest = sum(default is None for default in taken.values()), sum(default is None for default in expected.values())
    variable = forward.args.vararg or "transform_to_nki_inputs" in functions
    if not variable and (len(own) < fewest[1] or len(known) < fewest[0]):
        raise UsageError(
            f"forward in {reference} takes {', '.join(known) or 'nothing'}; {_of(kernel)} takes {', '.join(own) or 'nothing'}",
            hint="both get the same arguments by position: write the same parameters for both",
        )
    first = own[: len(known)]
    if first != known and sorted(first) == sorted(known):
        raise UsageError(
            f"{_of(kernel)} takes {', '.join(first)}, and forward in {reference} takes {', '.join(known)}: both get their "
            "arguments by position",
            hint="write the parameters of the kernel and of forward in the same order",
        )


def _functions(reference: Path) -> Mapping[str, ast.FunctionDef]:
    """Return the functions of a reference by name; no functions if the file can not be read."""
    try:
        return functions_of(parse(reference.read_text(encoding="utf-8-sig")).body)
    except (OSError, ValueError, SyntaxError):
        return {}


def _check_name(name: str, subject: str, parameters: Mapping[str, ast.expr | None]) -> None:
    if name not in parameters:
        listed = ", ".join(parameters) or "none"
        raise UsageError(
            f"{subject} has no parameter {name!r}; its parameters are {listed}",
            hint=did_you_mean(name, parameters) or "use one of these names",
        )


def _of(kernel: Kernel) -> str:
    return f"the kernel in {kernel.filename}" if kernel.filename else "the kernel"


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
    """Return the parameters of the kernel function, each with the expression of its default (None without one).

    Return None if the file has no ``def`` of the function, for example because a call makes it.
    """
    try:
        name = find_entry(kernel.text, kernel.entry or None)
    except (UsageError, KernelFailure):  # the trace that follows reports this error of the file
        return None
    found = functions_of(parse(kernel.text).body).get(name)
    return dict(declared(found.args)) if found is not None and found.args.vararg is None else None


def declared(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the name of each parameter that is given by position, with the expression of its default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    for place, one in enumerate(positional):
        yield one.arg, arguments.defaults[place - without] if place >= without else None


def _default(name: str, default: ast.expr | None) -> float | int | bool:
    try:
        value = ast.literal_eval(default) if default is not None else None
    except ValueError:  # the default is an expression, not a literal
        value = None
    if isinstance(value, bool | int | float):
        return value
    raise UsageError(
        f"parameter {name!r} has no value, although a later parameter has one",
        hint=f"give --arg {name}=SHAPE:DTYPE or --scalar {name}=NUMBER",
    )
