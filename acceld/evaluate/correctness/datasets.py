"""Data sets on disk: the inputs a kernel gets and what the reference makes of them, as raw arrays and a JSON file.

A folder holds ``meta.json``, ``input<i>.bin`` (kernel's layout and dtype) and ``expected<i>.bin`` (reference's
layout; float64, float32 above 64 MiB, which adds 3e-8 to a relative error), all C order. It is written under another name and renamed, so that a folder that exists is
complete. Nothing in it is ever executed or unpickled.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.evaluate.correctness.metrics import Errors

META = "meta.json"
_WIDE_BYTES = 64 << 20
_RECENT_S = 900.0


@dataclass(frozen=True, slots=True)
class DataSet:
    """A complete data set. ``floors`` is the noise of honest arithmetic, one entry for each output."""

    folder: Path
    seed: int
    variant: str
    floors: tuple[Errors, ...]
    seconds: float = 0.0
    """Processor time of inputs and reference: a busy machine makes no workload dear."""

    def discard(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write(
    folder: Path,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    dtypes: Sequence[str],
    record: dict[str, Any],
) -> None:
    """Write a data set; ``dtypes`` are those the outputs must have. OSError where the disk refuses."""
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    partial.mkdir(parents=True, mode=0o700)
    try:
        described: list[dict[str, Any]] = []
        for number, value in enumerate(inputs):
            if isinstance(value, np.ndarray):
                np.ascontiguousarray(value).tofile(partial / f"input{number}.bin")
                described.append({"shape": value.shape, "dtype": value.dtype.name})
            else:
                described.append({"value": value.item() if isinstance(value, np.generic) else value})
        for number, array in enumerate(expected):
            np.ascontiguousarray(array, _kept_as(array)).tofile(partial / f"expected{number}.bin")
        outputs = [
            {"shape": array.shape, "dtype": dtype, "kept_as": _kept_as(array)}
            for array, dtype in zip(expected, dtypes, strict=True)
        ]
        (partial / META).write_text(json.dumps({**record, "inputs": described, "outputs": outputs}), encoding="utf-8")
        try:
            partial.rename(folder)
        except OSError:
            if not (folder / META).is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def describe(folder: Path) -> DataSet | None:
    """The data set in ``folder``; None where there is none."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    floors = tuple(Errors(*(math.inf if value is None else value for value in floor)) for floor in meta["floors"])
    return DataSet(folder, meta["seed"], meta["variant"], floors, meta["seconds"])


def read_inputs(folder: Path) -> list[Any]:
    """Inputs in the kernel's layout: fresh arrays (a kernel may update them) and Python numbers."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    values: list[Any] = []
    for number, one in enumerate(meta["inputs"]):
        if "value" in one:
            values.append(one["value"])
        else:
            values.append(np.fromfile(folder / f"input{number}.bin", _dtype(one["dtype"])).reshape(one["shape"]))
    return values


def read_expected(folder: Path) -> list[tuple[NDArray[Any], str]]:
    """Expected outputs (mapped read-only) with the dtype the kernel's must have."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    return [
        (np.memmap(folder / f"expected{i}.bin", _dtype(one["kept_as"]), "r", shape=tuple(one["shape"])), one["dtype"])
        for i, one in enumerate(meta["outputs"])
    ]


def trim(root: Path, most_bytes: int) -> None:
    """Remove the data sets used longest ago until the rest takes at most ``most_bytes``.

    Those used in the last minutes stay: another evaluation may be about to read them.
    """
    recent = time.time() - _RECENT_S
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        try:
            size = sum(file.stat().st_size for file in folder.iterdir())
            found.append((folder.stat().st_mtime, size, folder))
        except OSError:
            continue
    total = sum(size for _, size, _ in found)
    for used, size, folder in sorted(found):
        if total <= most_bytes or used > recent:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size


def touch(folder: Path) -> None:
    """Mark a data set as just used."""
    os.utime(folder)


def _kept_as(array: NDArray[Any]) -> str:
    return "float64" if array.size * 8 <= _WIDE_BYTES else "float32"


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
