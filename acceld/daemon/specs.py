"""Turn the run specifications and kernels that clients send into records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from acceld.config import Config
from acceld.errors import ConfigError, UsageError, nearest_of
from acceld.kernel_files import api_of_text
from acceld.model import PRESETS, PROPOSERS, SEARCH_OPTIONS, Gate, Kernel, MemoryPolicy, RunSpec, SearchParameters
from acceld.targets import SIMULATOR, Choice, choose, default_choice
from acceld.workloads import Arguments, Workload, load_workload, workload

T = TypeVar("T")

TEXT_LIMIT = 4 << 20
MODELS_REPAIRS = 2
"""Default number of repairs of a failed candidate, if models propose."""
_TEXTS = ("workload", "chip", "api", "backend", "proposer", "preset", "workload_folder", "name")


def run_spec(asked: Mapping[str, Any], config: Config, configured: Collection[str] = ()) -> RunSpec:
    """Return a run's specification. Raise UsageError for a key or value that can not be used.

    Values that the request lacks come from the configuration. ``configured`` are the dotted keys that the
    configuration sets.
    """
    known = {field.name for field in fields(RunSpec)}
    _refuse_unknown("a run", asked, known)
    values: dict[str, Any] = {"proposer": config.search.proposer, "preset": config.search.preset}
    for name in _TEXTS:
        if name in asked:
            values[name] = _text(name, asked[name])
    if not values.get("workload"):
        raise UsageError("a run needs a workload", hint="acceld workloads lists them.")
    for name, allowed in (("preset", PRESETS), ("proposer", PROPOSERS)):
        if values[name] not in allowed:
            raise UsageError(f"there is no {name} {values[name]!r}", hint=nearest_of(values[name], allowed))
    found, api, root = workload_of(asked, config), _asked(asked, "api"), asked.get("root")
    given = kernel(root, api, config.search.api) if root is not None else None
    default = Choice(config.devices.backend, config.search.api, config.search.chip)
    where = choose(
        default_choice(default, configured.__contains__, found.baselines) if root is None else default,
        backend=_asked(asked, "backend"),
        api=given.api if given is not None else api,
        chip=_asked(asked, "chip"),
        offered=found.baselines if api is None and root is None else (),
        runs_on=found.chips,
    )
    values |= {"backend": where.backend, "api": where.api, "chip": where.chip}
    search = asked.get("search") or {}
    values["search"] = configured_search(
        search, config, configured, values["preset"], values["proposer"], where.backend
    )
    values["root"] = given
    return RunSpec(**values)


def workload_of(asked: Mapping[str, Any], config: Config) -> Workload:
    """Return the workload that a request names. Raise WorkloadError if no such workload can be loaded."""
    folder = str(asked.get("workload_folder", ""))
    return load_workload(folder) if folder else workload(str(asked["workload"]), config.paths.workloads)


def configured_search(
    asked: Any, config: Config, configured: Collection[str], preset: str, proposer: str, backend: str
) -> SearchParameters:
    """Return the search parameters: those of the preset, overridden by the configuration, overridden by the request."""
    settings = config.search
    taken = {name: getattr(settings, name) for name in SEARCH_OPTIONS if f"search.{name}" in configured}
    if taken.get("fixer_steps") is None:  # the paper has no fixer
        taken["fixer_steps"] = MODELS_REPAIRS if PROPOSERS[proposer].repairs and preset != "paper" else 0
    if settings.strategy == "auto":  # rules find steps that pay only together if they tune sequences of rewrites
        taken["strategy"] = "tune" if proposer == "rules" and backend == SIMULATOR else "beam"
    taken |= {"budget_usd": config.budget.run_usd, "fixer_usd": config.budget.fixer_usd, "memory": "off"}
    base = replace(PRESETS[preset], **taken, screen=config.devices.screen == "simulator")
    found = search_parameters(asked, base)
    if "memory" in asked:
        return found
    return replace(found, memory=memory_policy(settings.memory, proposer, found.beam_width, PRESETS[preset].memory))


def memory_policy(
    asked: MemoryPolicy | Literal["auto"], proposer: str, beam_width: int, preset: MemoryPolicy = "off"
) -> MemoryPolicy:
    """Return the policy of the memory of insights for a run.

    ``auto`` means off for rules, which read no insights, and for a beam of width 1, where insights do harm. Otherwise
    ``auto`` means the policy of the preset (``fifo`` for ``paper``). A preset without a policy gets ``value``, the only
    policy that shows what earlier runs learned.
    """
    if asked != "auto":
        return asked
    if not PROPOSERS[proposer].uses_models or beam_width == 1:
        return "off"
    return "value" if preset == "off" else preset


def search_parameters(asked: Any, preset: SearchParameters) -> SearchParameters:
    """Return the preset's parameters, overridden by the request. Raise UsageError for a bad key or value."""
    if not isinstance(asked, Mapping):
        raise UsageError("the value of search is not a JSON object", hint='such as "search": {"iterations": 4}')
    _refuse_unknown("search", asked, SEARCH_OPTIONS)
    hints = get_type_hints(SearchParameters)
    for name, value in asked.items():
        _record(value, hints[name], f"search.{name} = {value!r}")
    try:
        return replace(preset, **asked)
    except ValueError as error:
        raise UsageError(f"search: {error}") from error


def kernel(asked: Any, api: str | None, otherwise: str) -> Kernel:
    """Return the kernel that a person's request describes.

    The kernel is trusted, so it may import anything, unless the request says that it is not. Its API is taken from
    the first of these that gives one: the request's field ``api``, the argument ``api``, the kernel's imports,
    ``otherwise``. Raise UsageError for a bad field.
    """
    if not isinstance(asked, Mapping):
        raise UsageError(
            "a kernel must be a JSON object with the key text", hint='such as "kernel": {"text": "import nki ..."}'
        )
    known = {field.name for field in fields(Kernel)}
    _refuse_unknown("a kernel", asked, known)
    text = asked.get("text")
    api = api or (api_of_text(text) if isinstance(text, str) and len(text) <= TEXT_LIMIT else None) or otherwise
    given = {"api": api, **asked, "grid": asked.get("grid") or (), "closure": asked.get("closure") or {}}
    found = _record({**given, "trusted": asked.get("trusted", True) is True}, Kernel, "a kernel")
    if len(found.text) > TEXT_LIMIT:
        raise UsageError(
            f"a kernel of {len(found.text)} characters is too long: at most {TEXT_LIMIT:,} are allowed",
            hint="leave out comments and tables that the kernel does not need",
        )
    if not all(extent > 0 for extent in found.grid):
        raise UsageError(
            f"grid = {list(found.grid)} is not a list of positive whole numbers", hint="such as [2] or [4, 2]"
        )
    if found.lnc not in (1, 2):
        raise UsageError(f"lnc = {found.lnc} is neither 1 nor 2")
    return found


def arguments(asked: Any) -> Arguments:
    """Return a kernel's arguments: a shape and a dtype for each array, and numbers."""
    return _record(asked, Arguments, "arguments")


def gate(asked: Any) -> Gate:
    """Return the gate called ``asked``. Raise UsageError for an unknown name."""
    try:
        return Gate(asked)
    except ValueError as error:
        raise UsageError(f"there is no gate {asked!r}", hint=f"One of {', '.join(Gate)}.") from error


def _record(raw: Any, kind: type[T], what: str) -> T:
    """Return a JSON value as a record of the class ``kind``. Raise UsageError if the value does not fit; ``what`` names
    the value in the message.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}") from error


def _refuse_unknown(what: str, asked: Mapping[str, Any], known: Collection[str]) -> None:
    for name in asked:
        if name not in known:
            raise UsageError(f"{what} has no key {name!r}", hint=nearest_of(name, known))


def _asked(asked: Mapping[str, Any], name: str) -> str | None:
    return _text(name, asked[name]) if name in asked else None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} = {value!r} is not text", hint="write it between quotation marks")
    return value


def refuse_other_settings(given: Any, own: Mapping[str, str], read: Collection[Path]) -> None:
    """Raise ConfigError if a client's configuration differs from the daemon's in a key on which the run depends.

    ``given`` has the ``digests`` of the client's values by key, and the ``files`` that it read. ``own`` are the
    daemon's digests, ``read`` the files that it read.
    """
    if not (
        isinstance(given, dict) and isinstance(given.get("digests"), dict) and isinstance(given.get("files"), list)
    ):
        raise UsageError(
            "settings must have the keys digests (an object) and files (a list)",
            hint='such as "settings": {"digests": {}, "files": []}',
        )
    theirs = given["digests"]
    keys = sorted(key for key in theirs.keys() | own.keys() if theirs.get(key) != own.get(key))
    if not keys:
        return
    here, there = (", ".join(map(str, files)) or "no acceld.toml" for files in (read, given["files"]))
    raise ConfigError(
        f"the daemon's configuration differs from this command's in {', '.join(keys)}: "
        f"the daemon read {here}; this command read {there}",
        hint="Variables ACCELD_... count too. Start the command in the daemon's folder, set the keys in its file, "
        "or: acceld restart",
    )
