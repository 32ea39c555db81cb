"""Make workload folders from PyTorch modules: each module's forward is written as a numpy reference first."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld.cli.output import say
from acceld.cli.reference import write_reference_workload
from acceld.drafts import DraftArgument, Lowered
from acceld.errors import UsageError
from acceld.lowering.aten.requests import ModuleReference, ModuleRequest, Refused, module_references


def described(given: Sequence[DraftArgument]) -> tuple[Mapping[str, Any], ...]:
    """Return arguments as a request has them."""
    return tuple({"name": a.name, "shape": a.shape, "dtype": a.dtype, "value": a.value} for a in given)


def module_reference(request: ModuleRequest) -> ModuleReference:
    """Return the reference of one module. UsageError if it has none."""
    (found,) = module_references([request])
    if isinstance(found, Refused):
        raise UsageError(f"{found.module}: {found.why}")
    if found.difference is None:
        say(f"note: {found.module} is too large to be run here: its reference was not compared with it")
    else:
        say(
            f"{found.module}: its reference in numpy agrees with it (relative distance {found.difference:.1g} in float64)"
        )
    return found


def write_module_workload(found: ModuleReference, folder: Path, *, name: str) -> Lowered:
    """Write a workload folder of a module's reference. Return the kernels that were lowered.

    :raises UsageError: the folder can not be written.
    """
    given = [DraftArgument(one.name, one.shape, one.dtype, absolute=one.absolute) for one in found.arguments]
    with tempfile.TemporaryDirectory() as place:
        reference = Path(place) / f"{name}.py"
        reference.write_text(found.text, encoding="utf-8")
        return write_reference_workload(reference, given, folder, name=name)
