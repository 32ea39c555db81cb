"""Find workload folders: acceld's own, those of installed packages, and those that a person added."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acceld import plugins
from acceld.errors import WorkloadError, did_you_mean, refuse_notebook
from acceld.resources import workloads_folder
from acceld.workloads.loading import FILE, load_workload
from acceld.workloads.records import Workload


def workload_folders(extra_folders: Iterable[Path | str] = ()) -> dict[str, Path]:
    """Return all folders that have a workload.toml, by folder name. The files are not read.

    acceld's folders come first, then those of installed packages, then the extra ones. If two have the same name, the
    later one counts. An extra folder may be a workload, a family, or a tree of families.
    """
    found: dict[str, Path] = {}
    added = (Path(plugin.value) for plugin in plugins.accepted("acceld.workloads", _fault))
    for root in (workloads_folder(), *added, *map(Path, extra_folders)):
        for depth in ("", "*/", "*/*/"):
            for path in sorted(root.glob(depth + FILE)):
                found[path.parent.resolve().name] = path.parent
    return found


def _fault(value: Any) -> str:
    if not isinstance(value, str | Path):
        return f"{value!r} is not the path of a folder"
    return "" if Path(value).is_dir() else f"there is no folder {value}"


def find_workloads(extra_folders: Iterable[Path | str] = ()) -> dict[str, Workload]:
    """Return every workload by name, in the order of families and names. Raise WorkloadError for an invalid workload."""
    loaded = [load_workload(folder) for folder in workload_folders(extra_folders).values()]
    return {one.name: one for one in sorted(loaded, key=lambda one: (one.family, one.name))}


def workload(name: str, extra_folders: Iterable[Path | str] = ()) -> Workload:
    """Return the workload with a name, or in a folder. Raise WorkloadError, with the nearest known name, if there is
    no such workload.
    """
    refuse_notebook(name)
    folder = Path(name)
    if folder.name and (folder / FILE).is_file():
        return load_workload(folder)
    folders = workload_folders(extra_folders)
    if name in folders:
        return load_workload(folders[name])
    known = find_workloads(extra_folders)
    if name in known:
        return known[name]
    if folder.name and folder.is_dir() and (folder / "reference.py").is_file():
        raise WorkloadError(
            f"the folder {name} has no {FILE}, so it is no workload",
            hint=f"acceld init --reference {folder / 'reference.py'} -o FOLDER writes one.",
        )
    near = did_you_mean(name, [*known, *_beside(folder)])
    if folder.name and folder.is_dir() and not near:
        raise WorkloadError(
            f"the folder {name} has no {FILE}, so it is no workload",
            hint="acceld init KERNEL.py makes a workload; acceld workloads lists those that exist",
        )
    raise WorkloadError(f"there is no workload {name!r}, and no folder of that name.", hint=near or LISTED)


LISTED = "`acceld workloads` lists acceld's own; one of yours is named by its folder, which acceld init makes."


def _beside(folder: Path) -> list[str]:
    """Return the paths of all workload folders that lie in the same parent folder as ``folder``, which need not
    exist.
    """
    return (
        [str(folder.with_name(found.parent.name)) for found in folder.parent.glob(f"*/{FILE}")] if folder.name else []
    )
