"""Make workload folders from references alone: their first kernels are lowered from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from acceld import drafts
from acceld.cli.output import say
from acceld.drafts import DraftArgument, Lowered
from acceld.errors import UsageError


def reference_workload(path: Path, given: Sequence[DraftArgument], place: Path) -> Path:
    """Return a workload folder under ``place`` for the reference in ``path``. Equal references and arguments share a
    folder. Its baselines are the lowered kernels; there is none for an API for which the reference can not be lowered.

    :raises UsageError: there is no such file, or the folder can not be written.
    :raises WorkloadError: the reference does not run.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror}") from error
    digest = hashlib.sha256(text + repr(given).encode()).hexdigest()[:8]
    folder = place / f"{path.stem}-{digest}"
    if (folder / "workload.toml").is_file():
        return folder
    write_reference_workload(path, given, folder, name=path.stem)
    return folder


def write_reference_workload(path: Path, given: Sequence[DraftArgument], folder: Path, *, name: str) -> Lowered:
    """Write the workload ``name`` to a new folder, and say what could not be made. Return the kernels that were lowered.

    :raises UsageError: the folder can not be written.
    :raises WorkloadError: the reference does not run.
    """
    facts = drafts.reference_facts(path, given)
    for output in facts.narrow:
        say(
            f"note: {path} computes {output} in float32 whatever it is given: a right kernel may differ from its rounding; "
            "leave out the casts to float32, and acceld calls it with float64"
        )
    lowered = drafts.write_reference_folder(path, facts, given, folder, name=name)
    for api, why in lowered.refused.items():
        say(f"no {api} kernel was lowered from {path}: {why}")
    return lowered
