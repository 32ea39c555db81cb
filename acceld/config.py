"""Resolve the configuration into one typed record, with the origin of each value.

Order: flags > ``ACCELD_*`` variables > nearest ``acceld.toml`` upward > the user's ``acceld.toml`` in the XDG config
folder > defaults. The defaults are the fields below; ``default_toml`` prints them, commented, as the file
``acceld.toml`` at the top of the project. Unknown keys are errors that name the nearest known key.

A project's file may not set keys marked ``trusted`` until its folder has been trusted (``acceld config trust DIR``): a
cloned repository must not be able to send a key to a stranger or to run a hook.
"""

from __future__ import annotations

import os
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from acceld import plugins, trust
from acceld.errors import ConfigError, did_you_mean
from acceld.model import SEARCH_OPTIONS, KnowledgeLevel, StrategyName
from acceld.targets import APIS, CHIPS, TARGETS

FILE_NAME = trust.FILE_NAME
PROVIDER_NAMES = ("openai", "anthropic", "bedrock", "mantle", "claude_aws", "vertex", "azure", "foundry", "openrouter")
"""Providers of models; ``acceld.llm.settings`` has the record of each."""


if TYPE_CHECKING:
    BackendName: TypeAlias = str
    ApiName: TypeAlias = str
    ChipName: TypeAlias = str
    ProviderName: TypeAlias = str
else:  # plug-ins add names of providers, so the type is built at run time and checked like a Literal
    BackendName, ApiName, ChipName = Literal[tuple(TARGETS)], Literal[APIS], Literal[CHIPS]
    ProviderName = Literal[(*PROVIDER_NAMES, *(one.name for one in plugins.plugins("acceld.providers")))]


def _key(default: Any, doc: str, *, trusted: bool = False, inferred: bool = False) -> Any:
    """Return a field. The default file omits an ``inferred`` key: a key that
    nobody has set may get another value than its default, inferred from the kernel.
    """
    metadata = {"doc": doc, "trusted": trusted, "inferred": inferred}
    if isinstance(default, list | dict):
        raise TypeError("defaults are immutable")
    return field(default=default, metadata=metadata)


def _option(name: str) -> Any:
    """Return a field for a search parameter, with the model's default and help."""
    return _key(SEARCH_OPTIONS[name].default, SEARCH_OPTIONS[name].metadata["doc"])


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Defaults of a search that the command line does not set."""

    preset: Literal["quick", "standard", "paper"] = _key("standard", "beam width, plans, attempts, iterations")
    proposer: Literal["rules", "llm", "both", "command"] = _key(
        "rules", "who proposes: rewrite rules (free), models, both together, or a program of your own"
    )
    strategy: StrategyName = _option("strategy")
    chip: ChipName = _key("trn1", "the chip to optimize for; not set, a formula is for trn2", inferred=True)
    api: ApiName = _key(
        "nki_legacy",
        "neuronxcc.nki (trn1, trn2), nki >= 0.3 (trn2, trn3), triton (GPUs), c or numpy (host); not set, a formula becomes a kernel of nki",
        inferred=True,
    )
    seed: int = _option("seed")
    memory: Literal["auto", "off", "fifo", "random", "value"] = _key(
        "auto", "optimization memory; auto: off at B = 1, else value"
    )
    show_simulated: bool = _option("show_simulated")
    knowledge: KnowledgeLevel = _option("knowledge")
    fixer_steps: int | None = _key(
        None, "repairs a failed candidate may get; default: 2 where models propose, except in the preset paper"
    )
    polish: int = _option("polish")
    patience: int = _option("patience")
    target_percent: float | None = _option("target_percent")
    max_usd_per_percent: float | None = _option("max_usd_per_percent")
    time_limit_s: float | None = _option("time_limit_s")


@dataclass(frozen=True, slots=True)
class EvaluateConfig:
    """Settings of the evaluation of candidates."""

    slots: int = _key(0, "evaluations at the same time; 0: min(cores, free memory / memory_gib)")
    memory_gib: float = _key(8.0, "memory an evaluation may use")
    build_s: float = _key(60.0, "deadline of tracing or compiling")
    check_s: float = _key(0.0, "deadline of checking; 0: 20 x the baseline's own, at least 30")
    time_s: float = _key(60.0, "deadline of timing")
    max_instructions: int = _key(1_000_000, "instructions a program may have")
    queue_size: int = _key(64, "candidates of a run that may wait for evaluation; at that number no new attempt starts")
    sandbox: Literal["auto", "L4", "L3", "L2", "L1"] = _key("auto", "least isolation to accept", trusted=True)
    cache_gib: float = _key(
        1.0, "disk for input data and references in the user's cache, of all folders; those in use may exceed it"
    )
    allow_unsandboxed: bool = _key(False, "run model-written code even if no isolation works", trusted=True)
    strict_legality: bool = _key(False, "refuse constructs that newer compilers refuse, such as block dimensions")

    nki: Literal["auto", "0.3", "0.4", "0.5", "0.6", "0.7"] = _key(
        "auto", "version of the package nki whose names and syntax count; auto: that of this machine, else 0.6"
    )
    second_opinion: Literal["auto", "off", "required"] = _key(
        "auto",
        "ask AWS's simulator and compiler about kernels of nki that passed the strict gate; auto: where installed",
    )
    second_python: str = _key("", "interpreter with the package nki for that; empty: search for one", trusted=True)

    @property
    def cache_bytes(self) -> int:
        """Return ``cache_gib`` in bytes."""
        return int(self.cache_gib * 2**30)


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """Settings of the models of one role."""

    models: tuple[str, ...] = _key((), "names from [models], each optionally with a weight: 'name*3'")
    max_output_tokens: int = _key(16_384, "longest answer")
    temperature: float | None = _key(None, "default: the provider's")
    choice: Literal["weights", "gain"] = _key(
        "weights", "how a model is drawn: by its weight, or also by the gain of its answers per dollar"
    )
    tools: bool = _key(
        False, "for the executor: look up, trace, profile and check inside an attempt, within [llm.tools]"
    )
    batch: bool = _key(False, "use the provider's batch mode: half the price, answers within a day")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Settings of one model. Its key is read from the environment variable ``key_env``."""

    provider: ProviderName = _key(
        "openai",
        "openai (any OpenAI-compatible endpoint), anthropic, bedrock, mantle, claude_aws, vertex, azure, foundry or openrouter",
    )
    name: str = _key("", "the provider's name of the model; default: the table's name")
    protocol: Literal["", "chat", "responses", "messages"] = _key(
        "", "the API; default: the provider's first; messages for Anthropic's models"
    )
    base_url: str = _key("", "another endpoint, such as http://127.0.0.1:8000/v1", trusted=True)
    key_env: str = _key("", "variable with the key; default: the provider's usual one", trusted=True)
    region: str = _key("", "for clouds of AWS and for vertex; default: from AWS's or Google's own settings")
    project: str = _key("", "for vertex; for claude_aws: the workspace")
    profile: str = _key("", "for clouds of AWS: a profile of the AWS settings", trusted=True)
    api_version: str = _key("", "for azure, whose endpoint is base_url")
    headers: tuple[str, ...] = _key((), "'Name: value', sent with every request", trusted=True)
    extra_body: str = _key("", "a JSON object whose entries are added to every request")
    stream: bool = _key(True, "false: answers arrive in one piece, for gateways that can not stream")
    concurrency: int = _key(8, "calls at the same time")
    requests_per_minute: int = _key(0, "0: no limit by acceld")
    tokens_per_minute: int = _key(0, "0: no limit by acceld")
    input_usd_per_mtok: float | None = _key(None, "price; default: genai-prices")
    cached_usd_per_mtok: float | None = _key(None, "price of a cached input token")
    cache_write_usd_per_mtok: float | None = _key(
        None, "price of an input token written to the cache; default: 1.25 times the input price"
    )
    output_usd_per_mtok: float | None = _key(None, "price of an output token")
    service_tier: Literal["", "flex", "priority"] = _key(
        "",
        "tier of service that is asked of an OpenAI-compatible endpoint; needs tier_input_ and tier_output_usd_per_mtok",
    )
    tier_input_usd_per_mtok: float | None = _key(None, "price in service_tier")
    tier_cached_usd_per_mtok: float | None = _key(None, "price of a cached input token in service_tier")
    tier_cache_write_usd_per_mtok: float | None = _key(
        None, "price of an input token written to the cache in service_tier; default: 1.25 times its input price"
    )
    tier_output_usd_per_mtok: float | None = _key(None, "price of an output token in service_tier")
    effort: str = _key("", "how long a reasoning model thinks: low, medium, high ...; default: the provider's")
    thinking: Literal["", "adaptive", "off"] = _key(
        "",
        "adaptive: an Anthropic model decides how long it thinks (the default without thinking_tokens); off: it does not think",
    )
    cache: Literal["5m", "1h"] = _key(
        "5m", "how long a Messages API keeps the beginning of a prompt; 1h costs twice the input price to write"
    )
    thinking_tokens: int = _key(0, "reasoning budget for Anthropic models; 0: off")
    context_tokens: int = _key(128_000, "longest prompt and answer together")


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """Caps on an executor's tools in one attempt. At a cap the executor gets no further tool calls; its attempt goes
    on.
    """

    turns: int = _key(4, "answers with tools; each is a call of the model")
    tokens: int = _key(120_000, "tokens of these calls")
    seconds: float = _key(300.0, "time that the tools take")
    usd: float | None = _key(None, "cap on the cost of these calls; an unknown price ends the use of tools")


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """Settings of calls to models."""

    planner: RoleConfig = field(default_factory=RoleConfig, metadata={"doc": "proposes plans"})
    executor: RoleConfig = field(default_factory=RoleConfig, metadata={"doc": "writes kernels"})
    fixer: RoleConfig = field(default_factory=RoleConfig, metadata={"doc": "repairs kernels; default: the executor's"})
    summarizer: RoleConfig = field(default_factory=RoleConfig, metadata={"doc": "default: the planner's models"})
    tools: ToolsConfig = field(default_factory=ToolsConfig, metadata={"doc": "caps of the executor's tools"})
    connect_s: float = _key(10.0, "deadline of connecting")
    first_token_s: float = _key(300.0, "deadline of the first token")
    idle_s: float = _key(120.0, "longest silence between tokens")
    total_s: float = _key(1800.0, "deadline of a whole call")
    retries: int = _key(4, "further tries after 408, 409, 429, 5xx and broken connections")
    batch_quiet_s: float = _key(10.0, "a batch is sent after this long without a further request")
    batch_poll_s: float = _key(30.0, "time between checks if a batch has ended")


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """Settings of a program that edits kernels, for ``proposer = "command"``. It runs with your rights."""

    run: str = _key(
        "",
        "claude, codex, gemini, kiro, aider, opencode, or a command line with {prompt}, {file}, {folder}, {usd}, {seconds}",
        trusted=True,
    )
    time_s: float = _key(900.0, "deadline of one attempt")
    usd: float | None = _key(None, "cap of one attempt; it counts in full if the program reports no cost")
    at_once: int = _key(2, "programs that run at the same time")


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """Caps on money. The highest possible cost of a call is reserved before the call is made."""

    run_usd: float | None = _key(None, "cap of one run")
    fixer_usd: float | None = _key(None, "share of it for repairs")
    day_usd: float | None = _key(None, "cap of a calendar day (UTC)")
    daemon_usd: float | None = _key(None, "cap from the daemon's start to its end")
    device_usd: float | None = _key(None, "cap of one run on a device's time, at devices.usd_per_hour")
    allow_unknown_price: bool = _key(False, "call models without a known price under a cap", trusted=True)


@dataclass(frozen=True, slots=True)
class DevicesConfig:
    """Settings of the hardware to use."""

    backend: BackendName = _key("simulator", "how candidates run")
    cores: tuple[int, ...] = _key((), "logical cores to use; empty: all that are free")
    compile_python: str = _key("", "interpreter with the Neuron compiler; empty: search for one", trusted=True)
    runner_python: str = _key("", "interpreter with the Neuron runtime; empty: search for one", trusted=True)
    compile_jail: Literal["auto", "strict", "wide", "off"] = _key(
        "auto", "jail of the Neuron compiler: strict, else wide; off: else none, as your user", trusted=True
    )
    usd_per_hour: float | None = _key(None, "price of the machine, for USD per kernel")
    cluster: str = _key(
        "",
        "evaluate on the hosts of a Ray cluster: auto, an address such as 10.0.0.1:6379, or ray://HOST:10001",
        trusted=True,
    )
    prices: tuple[str, ...] = _key((), "USD per hour of a cluster's hosts, such as 'trn1.32xlarge=21.50'")
    screen: Literal["off", "simulator"] = _key("off", "drop candidates that the simulator finds clearly slower")


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Settings of the daemon."""

    runs: int = _key(2, "runs that are active at the same time")
    idle_exit_s: float = _key(600.0, "a daemon started by optimize ends after this long without runs and clients")
    grace_s: float = _key(10.0, "time running evaluations get when the daemon stops")
    tcp: str = _key("", "also listen on a loopback address, such as 127.0.0.1:7431", trusted=True)
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info", "least level of the messages that are logged"
    )


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """Settings of watch mode."""

    mode: Literal["ask", "auto", "off"] = _key("ask", "a search after a save that passes: ask first, start it, or off")
    debounce_ms: int = _key(300, "quiet time after the last change")
    runs_per_hour: int = _key(6, "searches that saves may start in an hour")


@dataclass(frozen=True, slots=True)
class TuiConfig:
    """Settings of the terminal UI."""

    theme: str = _key("acceld", "a theme's name, or ansi")
    refresh_hz: float = _key(8.0, "how often the screen follows the events")
    notify: Literal["off", "bell", "osc9", "osc777"] = _key(
        "bell",
        "how alerts are shown (a win, a budget level, a sick device, a suspect kernel, an end); osc: on the desktop too",
    )
    columns: tuple[str, ...] = _key(
        (), "columns of the Runs screen in their order, by their titles, such as 'workload'; default: all that fit"
    )
    keys: tuple[str, ...] = _key((), "other keys, such as 'run.pause=f9'; ? on a screen lists the names")


@dataclass(frozen=True, slots=True)
class HooksConfig:
    """Commands run with a JSON object on standard input."""

    on_best: str = _key("", "a kernel faster beyond a tie passed the strict gate", trusted=True)
    on_end: str = _key("", "a run ended", trusted=True)
    on_alarm: str = _key("", "a budget level, a sick device or a suspect candidate", trusted=True)


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """OpenTelemetry spans and metrics of runs, calls, evaluations and the queue."""

    endpoint: str = _key("", "OTLP over HTTP, such as http://127.0.0.1:4318; empty: off", trusted=True)
    interval_s: float = _key(15.0, "how often metrics are sent")


@dataclass(frozen=True, slots=True)
class PathsConfig:
    """Further folders, relative to the file that sets them."""

    workloads: tuple[str, ...] = _key((), "folders that hold workload folders")
    prompts: tuple[str, ...] = _key((), "folders whose prompts replace those of the same name")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, with a value for each key."""

    search: SearchConfig = field(default_factory=SearchConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    llm: LlmConfig = field(default_factory=LlmConfig)
    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    command: CommandConfig = field(default_factory=CommandConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    tui: TuiConfig = field(default_factory=TuiConfig)
    hooks: HooksConfig = field(default_factory=HooksConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration, and in ``origins`` the place where each dotted key was set."""

    config: Config
    origins: Mapping[str, str]
    files: tuple[Path, ...] = ()

    def sets(self, key: str) -> bool:
        """Return True if a flag, a variable or a file sets the dotted key, even to its default."""
        return key in self.origins


def load(
    folder: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    trusted_folders: frozenset[Path] | None = None,
) -> Resolved:
    """Resolve the configuration for ``folder`` (default: the current folder).

    ``flags`` maps dotted keys to values; ``trusted_folders`` defaults to the folders that the user has trusted. Raises
    ConfigError for a file that can not be read, an unknown key, a value of the wrong type, or a trusted key in an
    untrusted folder.
    """
    environ = os.environ if environ is None else environ
    trusted_folders = trust.trusted_folders(environ) if trusted_folders is None else trusted_folders
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    files: list[Path] = []
    project = project_file(folder or Path.cwd())
    project_trusted = project is not None and project.parent in trusted_folders
    for path, is_trusted in ((user_file(environ), True), (project, project_trusted)):
        if path is None or not path.is_file():
            continue
        files.append(path)
        for key, value in _read(path):
            _, doc_field = _find(key, str(path))
            if doc_field.metadata.get("trusted") and not is_trusted and value != _default(doc_field):
                raise ConfigError(
                    f"{path}: {key} may only be set in a trusted folder",
                    hint=f"read the file, then run: acceld config trust {path.parent}",
                )
            if key.startswith("paths."):
                value = [str((path.parent / entry).resolve()) for entry in value]
            values[key], origins[key] = value, str(path)
    for name, text in environ.items():
        if (known := _variable_key(name)) is not None:
            hint, _ = _find(known, name)
            values[known], origins[known] = _from_text(text, hint, name), f"variable {name}"
    for key, value in (flags or {}).items():
        if value is not None:
            _find(key, "flag")
            values[key], origins[key] = value, "flag"
    return Resolved(_build(Config, "", values, origins), origins, tuple(files))


def project_file(folder: Path) -> Path | None:
    """Return the nearest acceld.toml in ``folder`` or above it; None without such a file."""
    for parent in (folder.resolve(), *folder.resolve().parents):
        if (parent / FILE_NAME).is_file():
            return parent / FILE_NAME
    return None


def settings_file(folder: Path | None = None) -> Path:
    """Return the file in which a person sets a key, for messages.

    The file is the nearest acceld.toml; else the user's own file, if that exists; else the acceld.toml that would be
    made in ``folder`` (default: the current folder).
    """
    folder = folder or Path.cwd()
    own = user_file(os.environ)
    return project_file(folder) or (own if own is not None and own.is_file() else folder / FILE_NAME)


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the user's own file, which need not exist; None without a home folder."""
    base = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    return Path(base) / "acceld" / FILE_NAME if base else None


def default_toml() -> str:
    """Return the text of an acceld.toml with every key at its default, each with a comment."""
    lines = [
        "# acceld's configuration: every key with its default.",
        "# Flags win over ACCELD_<SECTION>_<KEY> variables, then the nearest acceld.toml, then the user's own",
        "# (in the XDG config folder), then these defaults. `acceld config show` shows where each value comes from.",
    ]
    _render(Config, "", lines)
    lines += [
        "",
        "# A model that roles may name. Any OpenAI-compatible server works, vLLM and llama.cpp included.",
        "# [models.local]",
    ]
    for key in fields(ModelConfig):
        lines.append(f"# {key.name} = {_toml(_default(key))}  # {key.metadata['doc']}")
    return "\n".join(lines) + "\n"


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a record's fields. The types are cached, because reading them for each key would
    slow every start.
    """
    return get_type_hints(kind)


def every_key() -> Iterator[tuple[str, Any, str]]:
    """Yield each dotted key with its default and its help text; models' keys as ``models.NAME.key``."""
    for section, hint in _hints(Config).items():
        if section == "models":
            yield from ((f"models.NAME.{f.name}", _default(f), f.metadata["doc"]) for f in fields(ModelConfig))
        else:
            yield from _section_keys(hint, section)


def needs_trust(key: str) -> bool:
    """Return True if a project's file may set a dotted key only in a trusted folder."""
    _, found = _find(key, "")
    return bool(found.metadata.get("trusted"))


def _section_keys(kind: type, prefix: str) -> Iterator[tuple[str, Any, str]]:
    hints = _hints(kind)
    for f in fields(kind):
        if is_dataclass(hints[f.name]):
            yield from _section_keys(hints[f.name], f"{prefix}.{f.name}")
        else:
            yield f"{prefix}.{f.name}", _default(f), f.metadata["doc"]


def _default(f: Field[Any]) -> Any:
    return None if f.default is MISSING else f.default


def _render(kind: type, prefix: str, lines: list[str]) -> None:
    hints = _hints(kind)
    plain = [f for f in fields(kind) if not is_dataclass(hints[f.name]) and kind is not Config]
    if prefix:
        lines += ["", f"# {(kind.__doc__ or '').splitlines()[0]}", f"[{prefix}]"]
    for f in plain:
        default = _default(f)
        left_out = default is None or default == "" or default == () or f.metadata.get("inferred")
        mark = "# " if left_out else ""
        lines.append(f"{mark}{f.name} = {_toml(default)}  # {f.metadata['doc']}")
    for f in fields(kind):
        if is_dataclass(hints[f.name]):
            _render(hints[f.name], f"{prefix}.{f.name}" if prefix else f.name, lines)


def _toml(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return f"{value:_}" if isinstance(value, int) and value >= 100_000 else str(value)


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", hint="the file must be TOML") from error
    yield from _flatten(table, "")


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(value, key + ".")
        else:
            yield key, value


def _variable_key(name: str) -> str | None:
    if not name.startswith("ACCELD_"):
        return None
    words = name.removeprefix("ACCELD_").lower()
    for key, _, _ in every_key():
        if key.replace(".", "_") == words:
            return key
    return None


def _near(key: str, known: Sequence[str]) -> str:
    """Return the nearest key as a hint. Names are compared without their sections, because equal sections would
    make all names similar.
    """
    section, _, name = key.rpartition(".")
    own = [one for one in known if one.rpartition(".")[0] == section]
    if not own:
        return did_you_mean(key, known) or "acceld config show lists the keys"
    named = did_you_mean(name, [one.rpartition(".")[2] for one in own])
    elsewhere = [one for one in known if one.rpartition(".")[2] == name]
    if named:
        return named.replace("'", f"'{section}.", 1)
    return f"Did you mean {elsewhere[0]!r}?" if elsewhere else f"acceld config show lists the keys of [{section}]"


def _find(key: str, where: str) -> tuple[Any, Field[Any]]:
    """Return the type and field of a dotted key. Raises ConfigError with the nearest known key for an unknown key."""
    kind: Any = Config
    parts = key.split(".")
    for position, part in enumerate(parts):
        hints = _hints(kind) if isinstance(kind, type) and is_dataclass(kind) else {}
        if kind is Config and part == "models" and len(parts) == 3:
            kind = ModelConfig
            hints, part = _hints(kind), parts[2]
            position = len(parts) - 1
        if part not in hints:
            known = [known_key for known_key, _, _ in every_key()]
            if parts[0] == "models" and len(parts) == 3:
                known = [f"models.{parts[1]}.{f.name}" for f in fields(ModelConfig)]
            raise ConfigError(f"{where}: there is no key {key!r}", hint=_near(key, known))
        found = next(f for f in fields(kind) if f.name == part)
        kind = hints[part]
        if position == len(parts) - 1:
            if is_dataclass(kind):
                raise ConfigError(f"{where}: {key!r} is a section, not a key")
            return kind, found
    raise ConfigError(f"{where}: there is no key {key!r}")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _from_text(text: str, hint: Any, where: str) -> Any:
    """Return the value of a variable's text as type ``hint``. A list is separated by commas."""
    options = _options(hint)
    given: Any = text
    if any(get_origin(option) is tuple for option in options):
        given = [entry.strip() for entry in text.split(",") if entry.strip()]
    elif bool in options:
        given = {"yes": True, "no": False}.get(text.lower(), text)
    return _convert(given, hint, f"{where}: {text!r}", strict=False)


_NAMES: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "empty",
    tuple[int, ...]: "a list of whole numbers",
    tuple[str, ...]: "a list of texts",
}


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return " or ".join(_NAMES[option] for option in _options(hint))


def _convert(value: Any, hint: Any, subject: str, *, strict: bool = True) -> Any:
    """Return ``value`` converted to ``hint``. Raises ConfigError, whose message begins with ``subject``, if that is not
    possible.
    """
    if value in ("", None) and type(None) in _options(hint):
        return None
    if get_origin(hint) is Literal and value in get_args(hint):
        return value
    import msgspec  # imported here, because many commands have no value to convert

    try:
        return msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError:
        near = did_you_mean(str(value), map(str, get_args(hint))) if get_origin(hint) is Literal else ""
        raise ConfigError(f"{subject} is not {_describe(hint)}", hint=near) from None


def _build(kind: Any, prefix: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> Any:
    made: dict[str, Any] = {}
    hints = _hints(kind)
    for f in fields(kind):
        key, hint = f"{prefix}{f.name}", hints[f.name]
        if kind is Config and f.name == "models":
            names = {k.split(".")[1]: None for k in values if k.startswith("models.")}
            made["models"] = {name: _build(ModelConfig, f"models.{name}.", values, origins) for name in names}
        elif is_dataclass(hint):
            made[f.name] = _build(hint, key + ".", values, origins)
        elif key in values:
            made[f.name] = _convert(values[key], hint, f"{origins[key]}: {key} = {values[key]!r}")
    return kind(**made)


def dotted(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested sections by dotted keys."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        found |= dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found
