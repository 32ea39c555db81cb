"""Make workload folders from PyTorch modules. A module's forward is first written as a numpy reference."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld import drafts
from acceld.cli.output import say
from acceld.cli.reference import write_reference_workload
from acceld.drafts import DraftArgument, Lowered
from acceld.errors import UsageError
from acceld.lowering.aten.requests import ModuleReference, ModuleRequest, Refused, module_references


def add_module(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a PyTorch module is constructed and called."""
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="[NAME=]SHAPE:DTYPE",
        help="the shape and type of an array argument; repeat it for each, in order",
    )
    parser.add_argument(
        "--scalar",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number argument; numbers come after the arrays",
    )
    parser.add_argument(
        "--init", action="append", default=[], metavar="NAME=VALUE", help="an argument of the module's class"
    )


def module_request(module: str, arguments: argparse.Namespace, dtype: str = "") -> ModuleRequest:
    """Return the request that the options of :func:`add_module` describe."""
    given = [drafts.parse_argument(text, place, of_module=True) for place, text in enumerate(arguments.arg)]
    given += [drafts.parse_scalar(text) for text in arguments.scalar]
    return ModuleRequest(module, described(given), _settings(arguments.init), dtype=dtype)


def refuse_module(arguments: argparse.Namespace, why: str) -> None:
    """Raise UsageError, with the reason ``why``, if an option of :func:`add_module` is given."""
    unused = [f"--{name}" for name in ("arg", "scalar", "init", "dtype") if getattr(arguments, name)]
    if unused:
        raise UsageError(f"{', '.join(unused)} describes a module, and {why}", hint="give a module, PKG.MOD:CLASS")


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a module's class from ``NAME=VALUE`` words; values are written as in Python or
    JSON.
    """
    found: dict[str, Any] = {}
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--init {text!r} is not NAME=VALUE", hint="for example --init hidden=4096")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def described(given: Sequence[DraftArgument]) -> tuple[Mapping[str, Any], ...]:
    """Return drafted arguments in the form that a :class:`ModuleRequest` takes."""
    return tuple({"name": a.name, "shape": a.shape, "dtype": a.dtype, "value": a.value} for a in given)


def module_reference(request: ModuleRequest) -> ModuleReference:
    """Return the numpy reference of a module. Raise UsageError if the module can not be written as a numpy
    reference.
    """
    (found,) = module_references([request])
    if isinstance(found, Refused):
        raise UsageError(f"{found.module}: {found.why}")
    if found.difference is None:
        say(
            f"note: {found.module} is too large to be run here, so the numpy reference was not compared with the module"
        )
    else:
        say(
            f"{found.module}: the numpy reference agrees with the module (relative distance {found.difference:.1g} in float64)"
        )
    return found


def write_module_workload(found: ModuleReference, folder: Path, *, name: str) -> Lowered:
    """Write the workload of a module's reference to a new folder, and return the kernels that were lowered from
    it.

    Raise UsageError if the folder can not be written.
    """
    given = [DraftArgument(one.name, one.shape, one.dtype, absolute=one.absolute) for one in found.arguments]
    with tempfile.TemporaryDirectory() as place:
        reference = Path(place) / f"{name}.py"
        reference.write_text(found.text, encoding="utf-8")
        return write_reference_workload(reference, given, folder, name=name, shown=folder / "reference.py")
