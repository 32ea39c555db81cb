"""Store data sets on disk, as raw arrays and a JSON file: a kernel's inputs, and the reference's outputs.

A folder holds ``meta.json``, ``input<i>.bin`` (kernel's layout and dtype) and ``expected<i>.bin`` (reference's
layout), all in C order. Expected outputs are float64. They are float32 above 64 MiB, which adds 3e-8 to a
relative error, and where a kernel's output has fewer bits than float32. Nothing in a folder is ever executed or
unpickled.

A folder is written under another name and then renamed, so that a folder with its final name is complete. A
process that writes or uses a folder holds a shared lock on it. A folder without a lock may be removed at any
time.

All daemons and commands of a user share the data sets in one folder. The JSON file has size and hash of each
array's file. A process that did not write a data set compares them before it uses the data set. If they differ,
it makes the data set again.

The daemon begins, publishes, locks and removes data sets. Only child processes read and write arrays and import
numpy. A child can write into the folder of its own data set alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from acceld.evaluate.correctness.bands import Piece
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.tolerance import Tolerance
from acceld.workloads.inputs import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

META = "meta.json"
_WIDE_BYTES = 64 << 20
_NARROW = frozenset({"bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
"""Dtypes of outputs that round at least a thousand times as coarsely as float32, and whose range is no wider than that
of float32.
"""
_SURELY_RIGHT = 1e-6
"""Relative L2 error below which the position of the largest error is not looked for."""
_EMPTY_S = 60.0
"""An empty folder that is older than this many seconds was left by a process that has ended."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A complete data set on disk. ``floors`` has the noise of honest arithmetic, one record for each piece (whole
    output, or band of an output).
    """

    folder: Path
    seed: int
    variant: str
    floors: tuple[Errors, ...]
    seconds: float = 0.0
    """Processor seconds that inputs and reference took. Unlike wall time, they do not grow on a busy machine."""


def partial_of(folder: Path) -> Path:
    """Return the temporary name for the folder of a data set that is being written. Each call returns a new name."""
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")


def begin(folder: Path) -> Begun:
    """Make the folder in which a data set is written, under a temporary name, and lock it. Raise OSError if
    that fails.
    """
    partial = partial_of(folder)
    partial.mkdir(parents=True, mode=0o700)
    made = Begun(folder, partial, os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    fcntl.flock(made.lock, fcntl.LOCK_SH)
    return made


@dataclass(slots=True)
class Begun:
    """A data set that is being written in a block: its folder ``partial`` and the folder's lock.

    After the block the folder is removed, unless it was published.
    """

    folder: Path
    partial: Path
    lock: int
    published: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.published:
            os.close(self.lock)
            shutil.rmtree(self.partial, ignore_errors=True)

    def publish(self) -> tuple[DataSet, int] | None:
        """Give a finished data set its final name, and return it as :func:`hold` does; None if the data set is not
        finished.

        If another process has made an equal data set meanwhile, return the data set of that process.
        """
        if describe(self.partial) is None:
            return None
        for _ in range(2):
            try:
                self.partial.rename(self.folder)
            except OSError:  # the folder exists already
                if (found := hold(self.folder)) is not None:
                    return found
                remove(self.folder)
                continue
            self.published = True
            _proven.add(_identity(self.folder))
            data = describe(self.folder)
            assert data is not None, "it was complete under its former name"
            return data, self.lock
        return None


class Writer:
    """Write a data set: first its inputs, then its expected outputs in parts, last its JSON file."""

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._inputs: list[dict[str, Any]] = []
        self._rooms: dict[int, NDArray[Any]] = {}

    def room(self, number: int, shape: Sequence[int], dtype: str) -> NDArray[Any]:
        """Return an array in the file of input ``number``. Values that a caller writes into this array are not copied
        by :meth:`inputs`.
        """
        self._rooms[number] = _mapped(self._partial / f"input{number}.bin", dtype, shape)
        return self._rooms[number]

    def inputs(self, values: Sequence[Any]) -> None:
        """Write the inputs. After that, :func:`read_inputs` can read them, although the folder still has its temporary
        name.
        """
        import numpy as np

        for number, value in enumerate(values):
            if isinstance(value, np.ndarray):
                if not _is_all_of(value, self._rooms.get(number)):
                    (self._partial / f"input{number}.bin").unlink(
                        missing_ok=True
                    )  # a new file, because the array of room() still maps the old one
                    packed = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
                    # unlike numpy's tofile, this raises an OSError with its errno
                    (self._partial / f"input{number}.bin").write_bytes(packed.data)
                self._inputs.append({"shape": value.shape, "dtype": value.dtype.name})
            else:
                self._inputs.append({"value": value.item() if isinstance(value, np.generic) else value})
        self._describe({"inputs": self._inputs})

    def expected(self, number: int, shape: Sequence[int], dtype: str) -> NDArray[Any]:
        """Return the array in the file of output ``number``, for the caller to fill with the expected values.

        ``dtype`` is the dtype of the kernel's output.
        """
        return _mapped(self._partial / f"expected{number}.bin", _kept_as(math.prod(shape), dtype), shape)

    def finish(self, outputs: Iterable[tuple[tuple[int, ...], str]], record: dict[str, Any]) -> None:
        """Write the JSON file, with the fields of ``record``. ``outputs`` has the shape and the dtype of each kernel's
        output.
        """
        described = [
            {"shape": shape, "dtype": dtype, "kept_as": _kept_as(math.prod(shape), dtype)} for shape, dtype in outputs
        ]
        files = {path.name: [path.stat().st_size, _digest(path)] for path in sorted(self._partial.glob("*.bin"))}
        self._describe({**record, "inputs": self._inputs, "outputs": described, "files": files})

    def _describe(self, record: dict[str, Any]) -> None:
        """Replace the JSON file in one step, because another process may be reading it."""
        written = self._partial / f".{META}"
        written.write_text(json.dumps(record), encoding="utf-8")
        written.rename(self._partial / META)


def _is_all_of(value: NDArray[Any], room: NDArray[Any] | None) -> bool:
    """Tell whether ``value`` is the array ``room`` itself: the same elements, in the same order and memory."""
    if room is None or value.dtype != room.dtype or value.size != room.size or not value.flags.c_contiguous:
        return False
    return bool(value.__array_interface__["data"][0] == room.__array_interface__["data"][0])


def _mapped(path: Path, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return an array in a new file, which gets its full size at once. Raise OSError if the disk has no room."""
    import numpy as np

    kind = numpy_dtype(dtype)
    # without allocated blocks, a process that fills the array could die of SIGBUS when the disk is full
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, math.prod(shape) * kind.itemsize)
    return np.memmap(path, kind, "r+", shape=tuple(shape)).view(np.ndarray)


def hold(folder: Path) -> tuple[DataSet, int] | None:
    """Return the data set in ``folder``, and a file descriptor that locks it: the data set stays on disk until the
    descriptor is closed.

    Return None if ``folder`` has no data set, if the data set is damaged, or if other users may write to it.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        found, info = describe(folder), os.fstat(lock)
        mine = info.st_uid == os.getuid() and not info.st_mode & 0o022
        if found is not None and mine and info.st_ino == folder.stat().st_ino and _is_sound(folder):
            os.utime(folder, ns=(time.time_ns(),) * 2)  # the time that the system would set is up to 4 ms late
            return found, lock
    os.close(lock)
    return None


_proven: set[tuple[int, ...]] = set()
"""Data sets that this process wrote, or compared with the hashes in their JSON files."""


def _identity(folder: Path) -> tuple[int, ...]:
    """Return a key that changes when a data set's folder or JSON file is replaced."""
    made, record = folder.stat(), (folder / META).stat()
    return made.st_dev, made.st_ino, record.st_ino, record.st_mtime_ns


def _is_sound(folder: Path) -> bool:
    """Tell whether the files of a data set have the sizes and hashes that its JSON file records. Raise OSError if a
    file can not be read.
    """
    if (identity := _identity(folder)) in _proven:
        return True
    files = json.loads((folder / META).read_text(encoding="utf-8")).get("files")
    there = {path.name: path for path in folder.glob("*.bin") if not path.is_symlink()}
    sound = (
        isinstance(files, dict)
        and files.keys() == there.keys()
        and all(path.stat().st_size == files[name][0] for name, path in there.items())
        and all(_digest(path) == files[name][1] for name, path in there.items())
    )
    if sound:
        _proven.add(identity)
    else:
        log.warning("the files of data set %s have changed; the data set is made again", folder)
    return sound


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(folder: Path) -> bool:
    """Remove a data set. Return False if the data set is in use; True if it is removed or never existed."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (
            os.fstat(lock).st_ino != folder.stat().st_ino
        ):  # another process put a new data set in its place before the lock
            return False
        gone = folder.with_name(f".{folder.name.lstrip('.')}.{secrets.token_hex(4)}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def describe(folder: Path) -> DataSet | None:
    """Return the record of the data set in ``folder``; None if ``folder`` has no data set. The files are not checked."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        floors = tuple(Errors(*(math.inf if value is None else value for value in floor)) for floor in meta["floors"])
        return DataSet(folder, meta["seed"], meta["variant"], floors, meta["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_inputs(folder: Path) -> list[Any]:
    """Return the inputs in the kernel's layout: arrays and Python numbers. A caller may change the arrays, not
    the files.
    """
    import numpy as np

    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    values: list[Any] = []
    for number, one in enumerate(meta["inputs"]):
        if "value" in one:
            values.append(one["value"])
        else:
            mapped = np.memmap(folder / f"input{number}.bin", numpy_dtype(one["dtype"]), "c", shape=tuple(one["shape"]))
            values.append(mapped.view(np.ndarray))
    return values


def read_expected(folder: Path) -> list[tuple[NDArray[Any], str]]:
    """Return the expected outputs (mapped read-only), each as (values, dtype that the kernel's output must have)."""
    import numpy as np

    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    return [
        (
            np.memmap(folder / f"expected{i}.bin", numpy_dtype(one["kept_as"]), "r", shape=tuple(one["shape"])),
            one["dtype"],
        )
        for i, one in enumerate(meta["outputs"])
    ]


def measure(folder: Path, outputs: Sequence[NDArray[Any]]) -> list[Errors]:
    """Return the errors of each piece (whole output, or band of an output) of a kernel's outputs against the data set
    in ``folder``, in the order of its floors.

    An error that is too large also says where the output is wrong.
    """
    from acceld.evaluate.correctness.metrics import compare_pieces, place_of

    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    wanted, pieces = [want for want, _ in read_expected(folder)], [Piece(*one) for one in meta["pieces"]]
    # a data set of an earlier release has no "least"
    least = Tolerance(*meta.get("least", (_SURELY_RIGHT, 0.0, 0.0)))
    found = compare_pieces(outputs, wanted, pieces, meta.get("squares"))
    for number, (errors, piece) in enumerate(zip(found, pieces, strict=True)):
        if errors.rel_l2 > _SURELY_RIGHT and not least.admits(errors) and not piece.band:
            want = wanted[piece.output]
            got = outputs[piece.output].reshape(want.shape)
            found[number] = replace(errors, place=place_of(piece.of(got), piece.of(want)))
    return found


def size_bytes(root: Path) -> int:
    """Return the disk space that all data sets take, including data sets that are being written."""
    return sum(size for _, size, _ in _folders(root))


def trim(root: Path, most_bytes: int) -> int:
    """Remove the least recently used data sets until the others take at most ``most_bytes``. Return the number of bytes
    that remain.

    Data sets in use stay. Folders that a process left unfinished are removed first.
    """
    found = _folders(root)
    total = sum(size for _, size, _ in found)
    for used, size, folder in found:
        if folder.name.startswith("."):
            left_behind = size or time.time() - used > _EMPTY_S
            total -= size if left_behind and remove(folder) else 0
    for _, size, folder in found:
        if total > most_bytes and not folder.name.startswith("."):
            total -= size if remove(folder) else 0
    return total


def folder_bytes(folder: Path) -> int:
    """Return the bytes that a data set takes on disk."""
    return sum(file.stat().st_size for file in folder.iterdir())


def _folders(root: Path) -> list[tuple[float, int, Path]]:
    """Return the time of last use, the size in bytes and the path of each data set, the least recently used first."""
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        with contextlib.suppress(OSError):
            found.append((folder.stat().st_mtime, folder_bytes(folder), folder))
    return sorted(found)


def expected_bytes(elements: int, dtype: str) -> int:
    """Return the bytes that one expected output takes on disk. ``dtype`` is the dtype of the kernel's output."""
    return elements * numpy_dtype(_kept_as(elements, dtype)).itemsize


def _kept_as(elements: int, dtype: str) -> str:
    """Return the dtype in which the file of an expected output has its values: float64, or float32 to save space."""
    return "float32" if elements * 8 > _WIDE_BYTES or dtype in _NARROW else "float64"
