"""Keep compiled kernels on disk: one folder for each key, written atomically, checked when it is read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

NEFF = "kernel.neff"
RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel (NEFF) on disk. Traces of its executions are in the same folder, so that the profiler's own
    viewer can open both.
    """

    key: str
    neff: Path
    sha256: str
    route: str
    """The way in which the compiler was called, such as ``neuronxcc.nki.baremetal``."""
    compiler_version: str
    outputs: tuple[str, ...] = ()
    """Names of the NEFF's outputs in the kernel's order, if the compiler reported them."""
    reported: str = ""
    """Text that the compiler printed."""

    @property
    def traces(self) -> Path:
        """Return the folder of the NTFF files (traces).

        Each core has a subfolder, because two cores may run the same NEFF at once.
        """
        return self.neff.parent / "traces"


class NeffCache:
    """The folder of compiled kernels on disk. Several processes may use it: an entry appears by an atomic rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def get(self, key: str) -> Compiled | None:
        """Return the entry with this key; None if no entry has this key. An entry whose bytes have changed is deleted
        first.
        """
        entry = self.folder / key
        try:
            record = json.loads((entry / RECORD).read_text(encoding="utf-8"))
            digest = hashlib.sha256((entry / NEFF).read_bytes()).hexdigest()
            if digest == record["sha256"]:
                outputs, reported = tuple(record.get("outputs", ())), record.get("reported", "")
                return Compiled(
                    key, entry / NEFF, digest, record["route"], record["compiler_version"], outputs, reported
                )
        except FileNotFoundError:
            if not entry.exists():
                return None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        shutil.rmtree(entry, ignore_errors=True)
        return None

    def put(
        self,
        key: str,
        neff: bytes,
        *,
        route: str,
        compiler_version: str,
        outputs: tuple[str, ...] = (),
        reported: str = "",
    ) -> Compiled:
        """Store a NEFF, and return its entry. If another process stored the key before, return the entry of
        that process.
        """
        digest = hashlib.sha256(neff).hexdigest()
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            (made / NEFF).write_bytes(neff)
            record = {"sha256": digest, "route": route, "compiler_version": compiler_version, "reported": reported}
            (made / RECORD).write_text(json.dumps({**record, "outputs": outputs}), encoding="utf-8")
            try:
                os.rename(made, self.folder / key)
            except OSError:
                if (found := self.get(key)) is not None:
                    return found
                os.rename(made, self.folder / key)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return Compiled(key, self.folder / key / NEFF, digest, route, compiler_version, outputs, reported)

    def drop(self, key: str) -> None:
        """Delete an entry if the entry exists."""
        shutil.rmtree(self.folder / key, ignore_errors=True)
