"""Lower references to kernels: the first kernels of workloads without one, and of new workload folders."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from acceld import drafts
from acceld.chips import API_CHIPS
from acceld.cli.output import say
from acceld.drafts import DraftArgument, DraftOutput, Lowered, ReferenceFacts
from acceld.errors import UsageError
from acceld.model import Kernel
from acceld.workloads import BASELINE_FILES, Workload, every_shape, hidden_shapes


def reference_workload(
    path: Path, given: Sequence[DraftArgument], place: Path, judge: Callable[[Path], Callable[[Path], None]]
) -> Path:
    """Return a workload folder under ``place`` for the reference in ``path``, with lowered kernels as baselines.

    The same reference with the same arguments gets the same folder again. An API for which the reference can not be
    lowered has no baseline.

    ``judge`` is called with a new folder while the folder has a temporary path, and may change its workload.toml.
    ``judge`` returns a function, which is called with the final path and tells the user what was found.

    Raise UsageError if there is no such file, or if the folder can not be written. Raise WorkloadError if the reference
    can not be run.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror}", hint="give a file that you may read") from error
    digest = hashlib.sha256(text + repr(given).encode()).hexdigest()[:8]
    folder = place / f"{path.stem}-{digest}"
    if (folder / "workload.toml").is_file():
        return folder
    try:
        place.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=".fresh-", dir=place)
    except OSError as error:
        raise UsageError(
            f"can not write {place}: {error.strerror}", hint="choose another state folder: --home DIR"
        ) from error
    with beside:
        fresh = Path(beside.name, path.stem)
        write_reference_workload(path, given, fresh, name=path.stem)
        tell = judge(fresh)
        try:
            fresh.rename(folder)
        except OSError as error:
            if not (folder / "workload.toml").is_file():  # else another command has made the same folder meanwhile
                raise UsageError(f"can not write {folder}: {error.strerror}", hint="remove that folder") from error
    tell(folder)
    return folder


def write_reference_workload(
    path: Path, given: Sequence[DraftArgument], folder: Path, *, name: str, shown: Path | None = None
) -> Lowered:
    """Run a reference, write its workload to a new folder, and return the lowered kernels.

    Print a message for each API without a kernel. Messages name the file ``shown`` in place of ``path``, if ``path``
    is a temporary file.

    Raise UsageError if the folder can not be written, WorkloadError if the reference can not be run.
    """
    facts = drafts.reference_facts(path, given)
    say_surprises(shown or path, facts)
    return write_lowered_workload(path, facts, folder, given, name=name, shown=shown)


def say_surprises(path: Path, facts: ReferenceFacts) -> None:
    """Print a note on each way in which acceld treats a reference that its author may not expect."""
    for output in facts.narrow:
        say(
            f"note: {path} computes {output} in float32 even from float64, so acceld takes its rounding for the exact "
            "result; leave out the casts to float32"
        )
    for one in facts.surprises:
        say(f"note: {path}: {one}")


def write_lowered_workload(
    path: Path,
    facts: ReferenceFacts,
    folder: Path,
    given: Sequence[DraftArgument] = (),
    *,
    name: str,
    shown: Path | None = None,
) -> Lowered:
    """Write the workload of a reference, and return the lowered kernels. ``facts`` are the reference's arguments and
    outputs.

    Print a message for each API without a kernel. Messages name the file ``shown``, or ``path``.

    Raise UsageError if the folder can not be written, WorkloadError if the reference can not be traced.
    """
    lowered = drafts.write_reference_folder(path, facts, given, folder, name=name)
    for why in dict.fromkeys(lowered.refused.values()):
        apis = " or ".join(api for api, one in lowered.refused.items() if one == why)
        say(f"no {apis} kernel was lowered from {shown or path}: {why}")
    return lowered


def lowered_root(found: Workload, api: str, *, hidden: bool) -> Kernel | None:
    """Return a kernel that is lowered from a workload's reference and supports all of its ``[[shapes]]``.

    If no such kernel can be lowered, print the reason and return None. With ``hidden`` the kernel also supports
    the shapes of ``[[hidden]]``; they can then be read in its text.

    Raise WorkloadError if the reference can not be run.
    """
    if found.reference is None or api not in API_CHIPS:
        return None
    every = [shaped for _, shaped in every_shape(found)] + [*(hidden_shapes(found) if hidden else ())]
    lowered = drafts.lowered_kernels(found.reference, *map(_facts, every))
    if api not in lowered.kernels:
        say(f"no {api} kernel was lowered from {found.reference}: {lowered.refused[api]}")
        return None
    return Kernel(lowered.kernels[api], api, "kernel", filename=BASELINE_FILES[api], trusted=True)


def first_kernel(found: Workload, api: str) -> tuple[Path, Kernel] | None:
    """Return the kernel with which a search begins if its workload has no baseline, and the kernel's path.

    The kernel is lowered from the reference. The path is the one that the kernel would have in the workload's folder.
    Return None if the workload has a baseline, or if no kernel was lowered.

    Raise WorkloadError if the reference can not be run.
    """
    kernel = None if found.baselines else lowered_root(found, api, hidden=True)
    if kernel is None:
        return None
    path = found.folder / BASELINE_FILES[api]
    say(f"note: {found.name} has no kernel, so this is the kernel that acceld lowers from {found.reference}")
    return path, kernel


def _facts(found: Workload) -> ReferenceFacts:
    """Return the arguments and outputs of a workload's reference at the workload's own shape."""
    arguments = [DraftArgument(a.name, a.shape, a.dtype, a.value, a.kernel_shape) for a in found.arguments]
    outputs = [DraftOutput(one.name, one.shape, one.dtype, one.kernel_shape) for one in found.outputs]
    return ReferenceFacts(tuple(arguments), tuple(outputs))
