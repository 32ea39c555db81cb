"""Find and validate the settings files: acceld.toml, prompts and workloads.

A file is validated with what belongs to it: acceld.toml with all other sources of configuration, a prompt with the
other prompts of its folder, a workload with its reference. An invalid file changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from acceld import config
from acceld.errors import AcceldError
from acceld.model import PROPOSERS, RunSpec
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.resources import prompts_folder
from acceld.trust import trust_file
from acceld.workloads import load_workload
from acceld.workloads.discovery import workload_folders

RESTART = ("evaluate.", "devices.", "daemon.", "paths.workloads")
"""Prefixes of the keys that a daemon reads only when it starts."""
AT_ONCE = ("budget.day_usd", "budget.daemon_usd", "budget.allow_unknown_price", "hooks.", "paths.prompts")
"""Prefixes of the keys that take effect at once. Other keys take effect when the next run, console or watch begins."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of validating one saved file."""

    path: Path
    text: str
    good: bool
    config: config.Config | None = None
    """The new configuration, if acceld.toml was saved and is valid."""
    configured: frozenset[str] = frozenset()
    """The dotted keys that the new configuration sets."""
    prompts: PromptLibrary | None = None
    """The new prompts, if a prompt was saved and all are valid."""


@dataclass(slots=True)
class SettingsFiles:
    """The settings files of one folder, and the settings in use."""

    folder: Path
    settings: config.Config
    read: tuple[Path, ...] = ()
    """The files that the settings in use were read from."""
    _workloads: Mapping[Path, Path] = field(default_factory=dict)
    _rejected: bool = False
    """True if the configuration on disk was rejected when it was read last."""

    def files(self) -> set[Path]:
        """Return the files to watch. They need not exist yet, but their folders do."""
        own = config.project_file(self.folder) or self.folder / config.FILE_NAME
        listed = (own, config.user_file(os.environ), trust_file())
        places = {path.resolve() for path in listed if path is not None}
        prompts = {path.resolve() for folder in self._prompt_folders() for path in folder.glob("*/*.md")}
        self._workloads = {
            path.resolve(): folder
            for folder in workload_folders(self.settings.paths.workloads).values()
            for path in (folder / "workload.toml", folder / "reference.py")
            if path.is_file()
        }
        return {path for path in (*places, *prompts, *self._workloads) if path.parent.is_dir()}

    def check(self, saved: Iterable[Path]) -> list[Validation]:
        """Validate the saved files ``saved``.

        Return a result each for acceld.toml, for the prompts and for each workload of which ``saved`` has a file.
        A configuration whose values did not change has no result, unless it replaces a rejected
        configuration.
        """
        found: dict[object, Validation] = {}
        for path in sorted(saved):
            if path.name == config.FILE_NAME or path == trust_file().resolve():
                former, was_rejected = self.settings, self._rejected
                found["config"] = self.configuration(path)
                if not was_rejected and not self._rejected and self.settings == former:
                    del found["config"]
            elif path in self._workloads:
                folder = self._workloads[path]
                found[folder] = _workload(path, folder)
            else:
                found["prompts"] = self._prompts(path)
        return list(found.values())

    def _prompt_folders(self) -> list[Path]:
        return [*map(Path, self.settings.paths.prompts), prompts_folder()]

    def configuration(self, path: Path) -> Validation:
        """Read the configuration again after ``path`` was saved. Use it if it is valid. Return the result of the
        validation.
        """
        try:
            resolved = config.load(self.folder)
        except AcceldError as error:
            self._rejected = True
            return Validation(path, f"rejected, the former file stays in use: {error.message}", False)
        self._rejected = False
        self.read = resolved.files
        new = resolved.config
        keys = changed_keys(self.settings, new)
        self.settings = new
        groups: dict[str, list[str]] = {}
        for key in keys:
            when = "in force" if key.startswith(AT_ONCE) else "for what starts from now on"
            groups.setdefault("after acceld restart" if key.startswith(RESTART) else when, []).append(key)
        reported = "; ".join(f"{when}: {', '.join(names)}" for when, names in groups.items())
        return Validation(
            path,
            reported or "valid: the settings in use are those of the file",
            True,
            config=new,
            configured=frozenset(resolved.origins),
        )

    def _prompts(self, path: Path) -> Validation:
        library = PromptLibrary(self._prompt_folders())
        problems = library.check()
        if problems:
            return Validation(path, f"rejected, the former prompts stay in use: {problems[0]}", False)
        return Validation(path, "valid: used from each run's next iteration on", True, prompts=library)


def _workload(path: Path, folder: Path) -> Validation:
    try:
        name = load_workload(folder).name
    except AcceldError as error:
        return Validation(path, f"rejected, no run can start with it: {error.message}", False)
    return Validation(path, f"workload {name} is valid: it is used from the next evaluation on", True)


def changed_keys(old: config.Config, new: config.Config) -> list[str]:
    """Return the dotted keys whose values differ between two configurations."""
    before, after = config.dotted(asdict(old)), config.dotted(asdict(new))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


MODELS = ("models.", "llm.", "budget.", "paths.prompts")
"""Prefixes of the keys that a run with models, and its cost, depend on."""
PROGRAM = ("command.", "budget.")
"""Prefixes of the keys that a run of a person's own program depends on."""


def digests(settings: config.Config, spec: RunSpec) -> dict[str, str]:
    """Return, as a dict by dotted key, a digest of each configured value on which a run depends beyond its
    specification.

    Keys that have their default are left out.
    """
    prefixes: tuple[str, ...] = ("paths.workloads",) if not spec.workload_folder else ()
    prefixes += MODELS if PROPOSERS[spec.proposer].asks_models else PROGRAM if spec.proposer == "command" else ()
    default = config.dotted(asdict(config.Config()))
    return {
        key: hashlib.sha256(repr(value).encode()).hexdigest()[:16]
        for key, value in config.dotted(asdict(settings)).items()
        if key.startswith(prefixes) and value != default.get(key)
    }
