"""Let an agent name only files below the folders that its user opened to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acceld import kernel_files
from acceld.config import Config
from acceld.errors import UsageError, did_you_mean
from acceld.model import Kernel
from acceld.workloads import Workload, find_workloads, load_workload
from acceld.workloads.discovery import workload_folders
from acceld.workloads.loading import FILE

SUFFIXES = (".py", ".c")
TEXT_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that are open to an agent (the roots), and the workloads that it can use."""

    roots: tuple[Path, ...]
    config: Config

    def file(self, text: str) -> Path:
        """Return the path of the existing file ``text`` below a root, with links resolved. Raise UsageError for any
        other path.
        """
        path = self._inside(text)
        if not path.is_file():
            raise UsageError(f"there is no file {text!r}", hint=f"paths must lie below {self._named()}")
        return path

    def kernel_file(self, text: str) -> Path:
        """Return the path of the kernel's file ``text`` below a root. Raise UsageError for any other path."""
        path = self.file(text)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{text!r} is not a kernel", hint="a kernel is a .py file, or a .c file for the host")
        return path

    def workload(self, name: str) -> Workload:
        """Return the workload called ``name``, or the one in the folder ``name`` below a root. Raise UsageError if
        there is no such workload.
        """
        folders = workload_folders(self.config.paths.workloads)
        if name in folders:
            return load_workload(folders[name])
        if known := find_workloads(self.config.paths.workloads).get(name):
            return known
        path = self._inside(name) if os.sep in name or name.startswith(".") else None
        if path is None and not any(character in name for character in "\0\n") and len(name) < 200:
            path = next((root / name for root in self.roots if (root / name / FILE).is_file()), None)
        if path is not None and (path / FILE).is_file():
            return self._own_workload(path)
        near = did_you_mean(name, [*folders, *find_workloads(self.config.paths.workloads)])
        raise UsageError(f"there is no workload {name[:200]!r}. {near}".rstrip(), hint="list_workloads names them")

    def own_workloads(self) -> list[str]:
        """Return the workload folders among the roots and at most three levels below them, as paths: relative to the
        first root for a folder inside it, else absolute.
        """
        depths = ("", "*/", "*/*/", "*/*/*/")
        globbed = (path for root in self.roots for depth in depths for path in sorted(root.glob(depth + FILE)))
        found = (path.parent for path in globbed if self._is_open(path.resolve()))
        return [str(one.relative_to(self.roots[0])) if one.is_relative_to(self.roots[0]) else str(one) for one in found]

    def new_folder(self, text: str) -> Path:
        """Return the path of the folder ``text`` below a root, which must not exist yet. Raise UsageError for any other
        path.
        """
        path = self._inside(text)
        if path.exists() or path in self.roots:
            raise UsageError(f"there is a folder or file {text!r} already", hint="choose another name")
        return path

    def kernel(self, source: str, path: str, api: str, found: Workload | None) -> Kernel:
        """Return an agent's kernel, which is not trusted. Entry, grid and LNC are those of its workload.

        Raise UsageError unless either ``source`` or ``path`` is given, and the text is not too long.
        """
        if bool(source) == bool(path):
            given = "both are given" if source else "neither is given"
            raise UsageError(f"a kernel needs source or path, and {given}", hint="give one of the two")
        file = self.kernel_file(path) if path else None
        text = kernel_files.read(file) if file else source
        if len(text) > TEXT_LIMIT:
            raise UsageError(
                f"a kernel of {len(text)} characters is too long", hint=f"at most {TEXT_LIMIT:,} characters"
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError("the source is not text in UTF-8", hint="send it again without surrogates") from error
        return Kernel(
            text,
            api or self.api_of(text, file, found),
            entry=(found.entry or "") if found else "",
            grid=found.grid if found else (),
            lnc=found.lnc if found else 1,
            filename=file.name if file else "kernel.py",
            trusted=False,
        )

    def api_of(self, text: str, file: Path | None, found: Workload | None) -> str:
        """Return the API of a source: that of its imports, else the only API of the workload, else the configured one."""
        written_for = "c" if file is not None and file.suffix == ".c" else kernel_files.api_of_text(text)
        if written_for is not None:
            return written_for
        baselines = list(found.baselines) if found else []
        return baselines[0] if len(baselines) == 1 else self.config.search.api

    def _inside(self, text: str) -> Path:
        try:
            found = self._absolute(Path(text)).resolve()
        except (ValueError, OSError, RuntimeError) as error:
            raise UsageError(
                f"{text[:200]!r} can not be used as a path: {error}",
                hint="give a path in an open folder, such as kernel.py",
            ) from error
        if self._is_open(found):
            return found
        raise UsageError(
            f"{text[:200]!r} is outside of the folders that you may use",
            hint=f"paths must lie below {self._named()}; the server's user can open more folders",
        )

    def _absolute(self, path: Path) -> Path:
        """Return a path as an absolute path. A relative path counts from the first root, or from the current folder if
        that folder is outside of the roots and the path leads into a root.
        """
        if path.is_absolute() or (self.roots[0] / path).exists():
            return self.roots[0] / path
        here = Path.cwd().resolve()
        return (
            here / path if not self._is_open(here) and self._is_open((here / path).resolve()) else self.roots[0] / path
        )

    def _is_open(self, path: Path) -> bool:
        """Tell whether a path without links is a root or lies below one."""
        return any(path == root or root in path.parents for root in self.roots)

    def _own_workload(self, folder: Path) -> Workload:
        """Return the workload in a folder below a root. Raise UsageError if a file that the workload names lies outside
        of the roots, also by a link.
        """
        self._inside(str(folder / FILE))
        found = load_workload(folder)
        named = (*found.baselines.values(), *(one.path for one in found.variants), found.reference, found.sample)
        for path in named:
            if path is not None:
                self._inside(str(path))
        return found

    def _named(self) -> str:
        return ", ".join(str(root) for root in self.roots)


def opened(folders: Sequence[str], config: Config) -> Places:
    """Return the open folders of a server: those in ``folders``, else the current folder. Raise UsageError for a path
    that is no folder.
    """
    roots = [Path(folder).resolve() for folder in folders] or [Path.cwd().resolve()]
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}", hint="--root names a folder that exists")
    return Places(tuple(roots), config)
