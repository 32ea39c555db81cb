"""Resolve the configuration into one typed record, with the origin of each value.

Sources, the strongest first: flags, ``ACCELD_*`` variables, the nearest ``acceld.toml`` in the current folder
or above it, the user's own ``acceld.toml`` in the XDG config folder, defaults. The fields below have the
defaults and the texts that document each key. ``default_toml`` prints both as the file ``acceld.toml`` at the
top of the project. An unknown key is an error that names the nearest known key.

A project's file may set a key marked ``trusted`` only after its folder was trusted (``acceld config trust
DIR``): a cloned repository must not be able to send an API key to a stranger or to run a hook.
"""

from __future__ import annotations

import os
import textwrap
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
from acceld.private_files import is_shared
from acceld.targets import APIS, CHIPS, TARGETS

FILE_NAME = trust.FILE_NAME
_VARIABLES = "ACCELD_"
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
    """Return the field of a key. ``doc`` is its text for people. A ``trusted`` key needs a trusted folder.

    If nobody sets an ``inferred`` key, its value follows from the kernel. Such a key is a comment in the default file.
    """
    metadata = {"doc": doc, "trusted": trusted, "inferred": inferred}
    if isinstance(default, list | dict):
        raise TypeError(f"the default {default!r} can be changed: use a tuple, or a record's factory")
    return field(default=default, metadata=metadata)


def _option(name: str, more: str = "", *, default: Any = None) -> Any:
    """Return a field for a search parameter. Help text and default are those of ``SearchParameters``. ``more`` is added
    to the help text, and ``default`` replaces the default.
    """
    help_text = SEARCH_OPTIONS[name].metadata["doc"]
    sentences = [f"{text[:1].upper()}{text[1:]}." for text in (help_text, more) if text]
    return _key(SEARCH_OPTIONS[name].default if default is None else default, " ".join(sentences))


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Settings of a search. A flag of ``acceld optimize`` wins over the key of the same name."""

    preset: Literal["quick", "standard", "paper"] = _key(
        "standard",
        "Size of a search. quick: 2 parents, 4 plans for each, 2 kernels for each plan, 4 iterations. standard: 4 "
        "parents, 8 plans, 2 kernels, 8 iterations. paper: 6 parents, 12 plans, 2 kernels, 16 iterations, without "
        "patience and repairs, as in the AccelOpt paper. Take quick for a first look.",
    )
    proposer: Literal["rules", "llm", "both", "command"] = _key(
        "rules",
        "Who proposes changes. rules: rewrite rules, which cost nothing. llm: the models of [llm]. both: models and "
        "rules in turn. command: a program of your own, set in [command].",
    )
    strategy: Literal["auto", StrategyName] = _option(
        "strategy", "with rules on the simulator auto means tune, else beam", default="auto"
    )
    chip: ChipName = _key(
        "trn1",
        "Chip that kernels are made faster for. Not set: trn2 for kernels of nki; trn1 for others, or a chip on which the "
        "kernel runs.",
        inferred=True,
    )
    api: ApiName = _key(
        "nki_legacy",
        "Language of the kernel. nki_legacy: neuronxcc.nki, for trn1 and trn2. nki: the package nki from 0.3 on, for "
        "trn2 and trn3. triton: GPUs. c and numpy: this machine's processor. Not set: the file's imports "
        "decide; nki for a numpy reference, and for a workload that names its kernel for nki first.",
        inferred=True,
    )
    seed: int = _option("seed")
    memory: Literal["auto", "off", "fifo", "random", "value"] = _key(
        "auto",
        "Insights from earlier rewrites that models are shown. off: no insights. fifo: this run's newest. random: a "
        "sample of this run's. value: the most useful of all runs. auto: off with rules and where one parent is "
        "kept; else fifo in the preset paper, and value in other presets. Set off to make runs independent of what "
        "earlier runs learned.",
    )
    show_simulated: bool = _option(
        "show_simulated",
        "A simulation proves no speed-up on the device, so an insight may be wrong there",
    )
    knowledge: KnowledgeLevel = _option(
        "knowledge",
        "Where every model has a Messages API, calls gives the facts of every NKI call, as full does, because these "
        "providers cache only long prompts. Set none for the shortest prompts",
    )
    fixer_steps: int | None = _key(
        None,
        "Repairs by a model that a failed candidate may get. Not set: 2 where models propose, but 0 in the preset "
        "paper. 0: a failed candidate is not repaired.",
    )
    polish: int = _option("polish", "Used with the proposer both")
    patience: int = _option("patience")
    target_percent: float | None = _option("target_percent", "Not set: no run ends for this reason")
    max_usd_per_percent: float | None = _option(
        "max_usd_per_percent",
        "The trend of the last three iterations counts, with models and with devices at devices.usd_per_hour. Not "
        "set: no run ends for this reason",
    )
    time_limit_s: float | None = _option("time_limit_s", "Not set: no limit")


@dataclass(frozen=True, slots=True)
class EvaluateConfig:
    """Limits and isolation of building, checking and timing a candidate. A candidate that needs more fails, and its
    run goes on.
    """

    slots: int = _key(
        0,
        "Evaluations that run at the same time. 0: one for each core, but no more than fit into the free memory at "
        "memory_gib each. Set a lower number to leave cores to other work.",
    )
    memory_gib: float = _key(
        8.0, "Memory in GiB that one evaluation may use. Raise it for workloads with large arrays."
    )
    build_s: float = _key(
        60.0,
        "Deadline in seconds for tracing or compiling one kernel. The Neuron compiler gets 600 s if this value is "
        "lower.",
    )
    check_s: float = _key(
        0.0,
        "Deadline in seconds for running a kernel on one data set. 0 on the simulator: 20 times what the baseline "
        "took, at least 30 s; 600 s while that time is unknown. 0 for kernels timed on this machine: 10 s a call.",
    )
    time_s: float = _key(60.0, "Deadline in seconds for timing one kernel.")
    max_instructions: int = _key(
        1_000_000, "Instructions that a traced NKI program may have. Raise it for kernels with many unrolled loops."
    )
    queue_size: int = _key(
        64,
        "Candidates of one run that may wait for a slot. When so many wait, the run asks for no further candidates "
        "until some have been evaluated.",
    )
    sandbox: Literal["auto", "L4", "L3", "L2", "L1"] = _key(
        "auto",
        "Weakest isolation of candidates' code that you accept. L1: system calls are filtered, but files can be "
        "read. L2: no files either. L3: namespaces of their own. L4: limits on whole process trees too. auto: the "
        "strongest that works here. Set a level to make acceld refuse to start below that level.",
        trusted=True,
    )
    cache_gib: float = _key(
        4.0,
        "Disk space in GiB for input data and reference outputs, in your cache folder, for all projects together. "
        "Data in use is kept even beyond this size.",
    )
    allow_unsandboxed: bool = _key(
        False,
        "true: code that models wrote also runs on a machine where no isolation works, with your rights. false: such "
        "code is refused there.",
        trusted=True,
    )
    strict_legality: bool = _key(
        False,
        "true: refuse constructs that later compilers refuse, such as on-chip tensors with block dimensions. Set it "
        "before you move kernels to a later SDK.",
    )

    nki: Literal["auto", "0.3", "0.4", "0.5", "0.6", "0.7"] = _key(
        "auto",
        "Version of the package nki by whose names and syntax kernels are judged. auto: the version that is "
        "installed on this machine, else 0.6. Set the version of the machine that the kernels will run on.",
    )
    second_opinion: Literal["auto", "off", "required"] = _key(
        "auto",
        "Whether AWS's own simulator and compiler must also accept a kernel of nki that passed acceld's strict gate. "
        "auto: ask where these tools are installed. off: never ask. required: refuse to evaluate where they are "
        "missing.",
    )
    second_python: str = _key(
        "",
        "Python interpreter of the environment with the package nki, which second_opinion uses. Empty: search this "
        "machine. Set a path, such as '/home/me/nki-venv/bin/python', if the search does not find yours.",
        trusted=True,
    )

    @property
    def cache_bytes(self) -> int:
        """Return ``cache_gib`` in bytes."""
        return int(self.cache_gib * 2**30)


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """Models of one role, and how they are asked."""

    models: tuple[str, ...] = _key(
        (),
        "Names of [models] tables, drawn by weight for each call. A weight is written after a star: 'fast*3' is "
        "drawn three times as often as 'careful'.",
    )
    max_output_tokens: int = _key(
        16_384, "Longest answer in tokens, reasoning included. Raise it if answers end in the middle."
    )
    temperature: float | None = _key(
        None, "Sampling temperature. Not set: the provider's default. Anthropic's current models take none."
    )
    choice: Literal["weights", "gain"] = _key(
        "weights",
        "How a model is drawn where a role has several. weights: by the weights alone. gain: more often if its "
        "answers brought more speed-up per dollar.",
    )
    tools: bool = _key(
        False,
        "true: the executor may look up NKI calls, and trace, profile and check a kernel before it answers, within "
        "the limits of [llm.tools]. Answers are then more often legal, and cost more calls. Other roles ignore this "
        "key.",
    )
    batch: bool = _key(
        False,
        "true: use the provider's batch mode, at half the price. Answers may take up to a day. false: ask at once.",
    )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model that roles may name. Its API key is read from an environment variable, not from this file."""

    provider: ProviderName = _key(
        "openai",
        "Who serves the model. openai: OpenAI or any endpoint with its API. anthropic, openrouter: these services. "
        "bedrock, mantle, claude_aws: Amazon Bedrock, its Messages API, the Claude Platform on AWS. vertex: Google "
        "Vertex AI. azure, foundry: Azure OpenAI, Claude in Microsoft Foundry.",
    )
    name: str = _key("", "The provider's name of the model. Empty: the name of this table.")
    protocol: Literal["", "chat", "responses", "messages"] = _key(
        "",
        "API that is spoken. chat and responses: OpenAI's two APIs. messages: Anthropic's API. Empty: messages for "
        "anthropic, bedrock, mantle, claude_aws, vertex and foundry; chat for the others.",
    )
    base_url: str = _key(
        "",
        "Address of the endpoint, such as http://127.0.0.1:8000/v1 for a local server. Empty: the provider's own. "
        "With an address and no key_env, openai and anthropic are sent no key.",
        trusted=True,
    )
    key_env: str = _key(
        "",
        "Environment variable that holds the API key. Empty: the provider's usual variable, such as OPENAI_API_KEY.",
        trusted=True,
    )
    region: str = _key(
        "",
        "Region of the cloud, such as us-west-2, for bedrock, mantle, claude_aws and vertex. Empty: from the "
        "settings of AWS or Google on this machine.",
    )
    project: str = _key("", "Google Cloud project for vertex; workspace for claude_aws. Other providers ignore it.")
    profile: str = _key(
        "", "Profile of your AWS settings, for bedrock, mantle and claude_aws. Empty: AWS's own choice.", trusted=True
    )
    api_version: str = _key(
        "", "Version of Azure's API, such as 2025-04-01-preview. The provider azure needs it, with base_url."
    )
    headers: tuple[str, ...] = _key((), "HTTP headers to send with every request, each as 'Name: value'.", trusted=True)
    extra_body: str = _key(
        "", "A JSON object whose entries are added to the body of every request, such as '{\"top_k\": 40}'."
    )
    stream: bool = _key(
        True, "true: answers are received piece by piece. Set false for gateways that can only send whole answers."
    )
    concurrency: int = _key(8, "Calls to this model at the same time, of all runs together.")
    requests_per_minute: int = _key(0, "Requests to this model in any 60 s. 0: acceld sets no limit.")
    tokens_per_minute: int = _key(0, "Tokens to and from this model in any 60 s. 0: acceld sets no limit.")
    input_usd_per_mtok: float | None = _key(
        None,
        "Price of a million input tokens in USD. Counts only together with output_usd_per_mtok. Not set: the price "
        "that the package genai-prices has. Set 0 for a server of your own.",
    )
    cached_usd_per_mtok: float | None = _key(
        None,
        "Price in USD of a million input tokens that are read from the provider's prompt cache. Not set: "
        "input_usd_per_mtok.",
    )
    cache_write_usd_per_mtok: float | None = _key(
        None,
        "Price in USD of a million input tokens that are written to the prompt cache. Not set: 1.25 times "
        "input_usd_per_mtok.",
    )
    output_usd_per_mtok: float | None = _key(
        None, "Price in USD of a million output tokens. Counts only together with input_usd_per_mtok."
    )
    service_tier: Literal["", "flex", "priority"] = _key(
        "",
        "OpenAI's tier of service. flex: cheaper and slower. priority: faster and dearer. Empty: the usual tier. A "
        "tier needs tier_input_usd_per_mtok and tier_output_usd_per_mtok.",
    )
    tier_input_usd_per_mtok: float | None = _key(
        None, "Price in USD of a million input tokens in the tier that service_tier names."
    )
    tier_cached_usd_per_mtok: float | None = _key(
        None,
        "Price in USD of a million input tokens read from the prompt cache in that tier of service. Not set: "
        "tier_input_usd_per_mtok.",
    )
    tier_cache_write_usd_per_mtok: float | None = _key(
        None,
        "Price in USD of a million input tokens written to the prompt cache in that tier of service. Not set: 1.25 "
        "times tier_input_usd_per_mtok.",
    )
    tier_output_usd_per_mtok: float | None = _key(
        None, "Price in USD of a million output tokens in the tier that service_tier names."
    )
    effort: str = _key(
        "",
        "How long a reasoning model thinks: low, medium, high, or what the model takes. Empty: the provider's default.",
    )
    thinking: Literal["", "adaptive", "off"] = _key(
        "",
        "Thinking of models that are asked by the Messages API. adaptive: the model decides how long it thinks. off: "
        "it does not think. Empty: adaptive, unless thinking_tokens is set.",
    )
    cache: Literal["5m", "1h"] = _key(
        "5m",
        "How long a Messages API keeps the beginning of a prompt. Writing it costs 1.25 times the input price for "
        "5m, and twice for 1h. Take 1h if more than 5 minutes pass between calls.",
    )
    thinking_tokens: int = _key(
        0, "Fixed number of tokens that an older Anthropic model may think. 0: the key thinking decides."
    )
    context_tokens: int = _key(
        128_000, "Longest prompt and answer together in tokens. Set what the model or your server takes."
    )


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """Limits on an executor's tools in one attempt. At a limit the executor must answer with the kernel."""

    turns: int = _key(
        4, "Answers of the executor that call tools. Each is a call of the model, which is paid for like any other."
    )
    tokens: int = _key(120_000, "Input and output tokens of the executor's answers that call tools, together.")
    seconds: float = _key(300.0, "Seconds that the called tools may run together.")
    usd: float | None = _key(
        None,
        "Cost in USD of the executor's answers that call tools. Not set: no limit besides the budget. With a limit, a model "
        "without a known price gets no tools after its first call.",
    )


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """Deadlines, retries and batches of calls to models. The sections below name the models of each role."""

    planner: RoleConfig = field(
        default_factory=RoleConfig, metadata={"doc": "Models of the planner, which proposes what to change."}
    )
    executor: RoleConfig = field(
        default_factory=RoleConfig, metadata={"doc": "Models of the executor, which writes the changed kernels."}
    )
    fixer: RoleConfig = field(
        default_factory=RoleConfig,
        metadata={
            "doc": "Models of the fixer, which repairs failed kernels. Without models, the executor's are asked."
        },
    )
    summarizer: RoleConfig = field(
        default_factory=RoleConfig,
        metadata={
            "doc": "Models of the summarizer, which writes insights for the memory. Without models, the planner's are asked."
        },
    )
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    connect_s: float = _key(10.0, "Deadline in seconds for connecting to an endpoint.")
    first_token_s: float = _key(
        300.0,
        "Deadline in seconds for the first piece of an answer. Raise it for models that think out of sight, and for "
        "service_tier = flex.",
    )
    idle_s: float = _key(120.0, "Longest silence in seconds between two pieces of an answer.")
    total_s: float = _key(1800.0, "Deadline in seconds for one whole request.")
    retries: int = _key(
        4,
        "How often a request is sent again after a failure that may pass: status 408, 409, 425, 429 or 5xx, or no "
        "connection.",
    )
    batch_quiet_s: float = _key(
        10.0, "A batch is sent when no further request has joined for this many seconds. For roles with batch = true."
    )
    batch_poll_s: float = _key(30.0, "Seconds between two checks of whether a batch has ended.")


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """A program of yours that edits kernels, for search.proposer = command. It runs with your rights."""

    run: str = _key(
        "",
        "The program: claude, codex, gemini, kiro, aider or opencode for a command line that acceld knows, or a "
        "command line of your own. {prompt}, {file}, {folder}, {usd} and {seconds} in the line are replaced.",
        trusted=True,
    )
    time_s: float = _key(900.0, "Deadline in seconds for one attempt. The program is ended then.")
    usd: float | None = _key(
        None,
        "Most that one attempt may cost in USD. An attempt counts with this amount if the program reports no cost. "
        "Not set: the program gets no cap.",
    )
    at_once: int = _key(2, "Programs that run at the same time.")


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """Caps on money. Before a call is sent, its highest possible cost is set aside, so that calls made at once
    keep the cap.
    """

    run_usd: float | None = _key(None, "Cap in USD on the calls to models of one run. Not set: no cap.")
    fixer_usd: float | None = _key(
        None,
        "Cap in USD on the repairs of one run, which count under run_usd too. At this cap repairs end and the run "
        "goes on. Not set: repairs have no cap of their own.",
    )
    day_usd: float | None = _key(
        None, "Cap in USD on the calls to models of all runs in one calendar day (UTC). Not set: no cap."
    )
    daemon_usd: float | None = _key(
        None, "Cap in USD on the calls to models of all runs from a daemon's start to its end. Not set: no cap."
    )
    device_usd: float | None = _key(
        None,
        "Cap in USD on the device time of one run. Needs devices.usd_per_hour, the machine's price. Not set: no cap.",
    )
    allow_unknown_price: bool = _key(
        False,
        "true: models without a known price are called even under a cap, although their cost can not be counted. "
        "false: such calls are refused under a cap.",
        trusted=True,
    )


@dataclass(frozen=True, slots=True)
class DevicesConfig:
    """The hardware that kernels run on."""

    backend: BackendName = _key(
        "simulator",
        "What times the kernels. simulator: a prediction, on any machine. neuron: a Trainium chip, for kernels of "
        "nki. neuron_legacy: a Trainium chip, for kernels of neuronxcc.nki. cuda: an NVIDIA GPU. cpu: this machine's "
        "processor.",
    )
    cores: tuple[int, ...] = _key(
        (), "Numbers of the logical NeuronCores to use, such as [0, 1]. Empty: all that are free."
    )
    compile_python: str = _key(
        "", "Python interpreter that has the Neuron compiler. Empty: search this machine.", trusted=True
    )
    runner_python: str = _key(
        "", "Python interpreter that has the Neuron runtime. Empty: search this machine.", trusted=True
    )
    compile_jail: Literal["auto", "strict", "wide", "off"] = _key(
        "auto",
        "Isolation in which the Neuron compiler runs candidates' Python. strict: that of kernels, plus processes of "
        "its own. wide: processes may also talk to each other and see more of the system. auto: strict, else wide. "
        "off: strict, else wide, else no isolation, with your rights. Change it only if `acceld doctor` says that "
        "auto fails.",
        trusted=True,
    )
    usd_per_hour: float | None = _key(
        None, "Price of this machine in USD an hour, for the cost of device time. Not set: that cost is unknown."
    )
    cluster: str = _key(
        "",
        "Ray cluster on whose hosts candidates are evaluated: auto on a node of the cluster, an address such as "
        "10.0.0.1:6379, or ray://HOST:10001 from outside. Empty: evaluate on this machine.",
        trusted=True,
    )
    prices: tuple[str, ...] = _key(
        (),
        "Prices of a cluster's hosts in USD an hour by instance type, such as 'trn1.32xlarge=21.50'. Other hosts "
        "cost usd_per_hour.",
    )
    screen: Literal["off", "simulator"] = _key(
        "off",
        "On a device: simulator measures only one in ten of the candidates that the simulator finds clearly slower "
        "than their parent. off: every candidate is measured. Use simulator if compiling and measuring take too "
        "long.",
    )


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The daemon, the background process that runs searches."""

    runs: int = _key(2, "Runs that search at the same time. Further runs wait. Paused runs do not count.")
    idle_exit_s: float = _key(
        600.0,
        "Seconds without a run and without a client after which a daemon that a command started ends by itself. A "
        "daemon of `acceld start` goes on.",
    )
    grace_s: float = _key(
        10.0, "Seconds that running evaluations get to finish when the daemon stops. After that they are ended."
    )
    tcp: str = _key(
        "",
        "Loopback address where the daemon listens too, such as 127.0.0.1:7431. Clients need the daemon's token for this address too. "
        "Empty: its unix socket alone.",
        trusted=True,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info",
        "Least severe messages that are written to the daemon's log. debug writes the most, then info and warning; error "
        "writes the least.",
    )


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """Reactions of ``acceld watch`` and the daemon to saved files."""

    mode: Literal["ask", "auto", "off"] = _key(
        "ask",
        "What happens after you save a kernel that passes. ask: enter starts a search. auto: a search starts by "
        "itself. off: no search.",
    )
    debounce_ms: int = _key(
        300,
        "Milliseconds without a change after which saved files are read. Raise it if a tool writes files one after "
        "another.",
    )
    runs_per_hour: int = _key(6, "Searches that saves may start in any hour.")


@dataclass(frozen=True, slots=True)
class TuiConfig:
    """The terminal UI, ``acceld attach``."""

    theme: str = _key(
        "acceld",
        "Colors: acceld, acceld-light, ansi-dark or ansi-light (the terminal's own colors), or the name of a theme "
        "of Textual.",
    )
    refresh_hz: float = _key(
        8.0, "Most screen updates a second. Lower it on a slow line; over ssh at most 4 are drawn."
    )
    notify: Literal["off", "bell", "osc9", "osc777"] = _key(
        "bell",
        "How you are told of a better kernel, a budget level, a sick device, a suspect kernel and the end of a run. "
        "bell: the terminal's bell. osc9, osc777: the bell and a desktop notification, by the escape sequence that "
        "your terminal knows. off: on the screen alone.",
    )
    columns: tuple[str, ...] = _key(
        (),
        "Columns of the Runs screen in their order, by title, such as ['run', 'state', 'best']. Empty: all that fit.",
    )
    keys: tuple[str, ...] = _key(
        (),
        "Keys to change, each as 'ACTION=KEY', such as 'run.pause=f9'. Press ? on a screen for the names of its "
        "actions.",
    )


@dataclass(frozen=True, slots=True)
class HooksConfig:
    """Commands that the daemon runs at events, for at most 30 s each, with a JSON object on standard input."""

    on_best: str = _key(
        "",
        "Command to run when a run has a new best kernel. The kernel passed the strict gate and is faster by more "
        "than the uncertainty.",
        trusted=True,
    )
    on_end: str = _key("", "Command to run when a run ends, in whatever state.", trusted=True)
    on_alarm: str = _key(
        "",
        "Command to run when 50, 80 or 100 % of a cap is spent, a device is sick, or a kernel is suspected of "
        "cheating.",
        trusted=True,
    )


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """Export of OpenTelemetry spans and metrics of runs, calls, evaluations and the queue."""

    endpoint: str = _key(
        "", "Collector that takes OTLP over HTTP, such as http://127.0.0.1:4318. Empty: nothing is sent.", trusted=True
    )
    interval_s: float = _key(15.0, "Seconds between two exports of metrics.")


@dataclass(frozen=True, slots=True)
class PathsConfig:
    """Further folders. A relative path starts at the folder of the file that sets it."""

    workloads: tuple[str, ...] = _key((), "Folders in which workload folders are searched, besides acceld's own.")
    prompts: tuple[str, ...] = _key(
        (), "Folders with prompt files of your own. A file replaces acceld's prompt of the same role and name."
    )


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
    """A resolved configuration. ``origins`` says where each dotted key was set, such as ``flag`` or a path;
    keys with their default are missing there. ``files`` are the files that were read.
    """

    config: Config
    origins: Mapping[str, str]
    files: tuple[Path, ...] = ()

    def sets(self, key: str) -> bool:
        """Tell whether a flag, a variable or a file sets the dotted key, even to its default."""
        return key in self.origins


def load(
    folder: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    trusted_folders: frozenset[Path] | None = None,
) -> Resolved:
    """Return the configuration for ``folder`` (default: the current folder).

    ``flags`` maps dotted keys to the values of options; entries that are None do not count. ``trusted_folders``
    are by default the folders that the user has trusted. Raise ConfigError for a file that can not be read, an
    unknown key, a value of the wrong type, or a key that needs a trusted folder in a folder that is not
    trusted.
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
                    f"{path}: {key} may be set only in a trusted folder, and this one is not trusted",
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
    """Return the nearest acceld.toml in ``folder`` or above it, except in shared folders above, such as /tmp. Return None if there is no such file."""
    here = folder.resolve()
    for parent in (here, *here.parents):
        if (parent / FILE_NAME).is_file() and (parent == here or not is_shared(parent)):
            return parent / FILE_NAME
    return None


def settings_file(folder: Path | None = None) -> Path:
    """Return the file that a message should name when a person has to set a key.

    The file is the nearest acceld.toml; else the user's own file, if that exists; else an acceld.toml in ``folder``
    (default: the current folder), which does not exist yet.
    """
    folder = folder or Path.cwd()
    own = user_file(os.environ)
    return project_file(folder) or (own if own is not None and own.is_file() else folder / FILE_NAME)


def no_model() -> str:
    """Return a sentence that says that no model is configured, and names the file to write one into."""
    file = settings_file()
    return f"no model is configured in {file}" if file.is_file() else f"no model is configured: there is no {file} yet"


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the user's own acceld.toml, which need not exist; None if there is no home folder."""
    base = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    return Path(base) / "acceld" / FILE_NAME if base else None


def default_toml() -> str:
    """Return the text of an acceld.toml in which every key has its default, below a comment on the key."""
    lines = [
        "# acceld's configuration: every key with its default.",
        "# Flags win over ACCELD_<SECTION>_<KEY> variables, then the nearest acceld.toml, then the user's own",
        "# (in the XDG config folder), then these defaults. `acceld config show` shows where each value comes from.",
    ]
    _render(Config, "", lines)
    lines += [
        "",
        *_comment(f"{ModelConfig.__doc__} Any server with OpenAI's API works too, vLLM and llama.cpp included."),
        "# [models.local]",
    ]
    for key in fields(ModelConfig):
        lines += ["#", *_comment(key.metadata["doc"]), f"# {key.name} = {_toml(_default(key))}"]
    return "\n".join(lines) + "\n"


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a record's fields by name. They are cached: reading them for each key would slow
    every start.
    """
    return get_type_hints(kind)


def every_key() -> Iterator[tuple[str, Any, str]]:
    """Yield dotted name, default and text of each key. Keys of a model are named ``models.NAME.key``."""
    for section, hint in _hints(Config).items():
        if section == "models":
            yield from ((f"models.NAME.{f.name}", _default(f), f.metadata["doc"]) for f in fields(ModelConfig))
        else:
            yield from _section_keys(hint, section)


def inferred_keys() -> list[str]:
    """Return the dotted keys whose value follows from the kernel if nobody sets them."""
    return [
        key for key, _, _ in every_key() if not key.startswith("models.") and _find(key, "")[1].metadata.get("inferred")
    ]


def needs_trust(key: str) -> bool:
    """Tell whether a project's file may set a dotted key only in a trusted folder."""
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


def every_section() -> Iterator[tuple[str, str]]:
    """Yield dotted name and purpose of each section. The section of a model is named ``models.NAME``."""
    yield from _sections(Config, "")


def _sections(kind: type, prefix: str) -> Iterator[tuple[str, str]]:
    hints = _hints(kind)
    for f in fields(kind):
        name = f"{prefix}{f.name}"
        if is_dataclass(hints[f.name]):
            yield name, _section_doc(f, hints[f.name])
            yield from _sections(hints[f.name], f"{name}.")
        elif kind is Config:
            yield f"{name}.NAME", _section_doc(f, ModelConfig)


def _section_doc(section: Field[Any], kind: type) -> str:
    """Return the text that describes a section, as one line: the text at the section's field, else the docstring of
    the section's record.
    """
    return str(section.metadata.get("doc") or " ".join((kind.__doc__ or "").split()))


def _comment(text: str) -> list[str]:
    """Return ``text`` as lines of a TOML comment, without the marks of code in docstrings."""
    return textwrap.wrap(
        text.replace("``", ""),
        110,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _render(kind: type, prefix: str, lines: list[str], doc: str = "") -> None:
    hints = _hints(kind)
    plain = [f for f in fields(kind) if not is_dataclass(hints[f.name]) and kind is not Config]
    if prefix:
        lines += ["", *_comment(doc), f"[{prefix}]"]
    for f in plain:
        default = _default(f)
        left_out = default is None or default == "" or default == () or f.metadata.get("inferred")
        mark = "# " if left_out else ""
        lines += ["", *_comment(f.metadata["doc"]), f"{mark}{f.name} = {_toml(default)}"]
    for f in fields(kind):
        if is_dataclass(hints[f.name]):
            _render(hints[f.name], f"{prefix}.{f.name}" if prefix else f.name, lines, _section_doc(f, hints[f.name]))


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
        raise ConfigError(
            f"{path} can not be read: {error.strerror}", hint="make it readable, or move it away"
        ) from error
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
    """Return the dotted key that a variable sets; None for a variable that is not a setting of acceld.

    Raise ConfigError, with the nearest variable, for a mistyped name: the name of a section with an unknown key, or a
    name almost like a setting's. A mistyped variable would otherwise be ignored.
    """
    if not name.startswith(_VARIABLES):
        return None
    words = name.removeprefix(_VARIABLES).lower()
    known = {key.replace(".", "_"): key for key, _, _ in every_key() if not key.startswith("models.")}
    if words in known:
        return known[words]
    from difflib import get_close_matches  # imported here, because most variables have known names

    section = next((f.name for f in fields(Config) if words.startswith(f"{f.name}_")), "")
    if section:  # keys are compared without the section: with it, all keys of a section are similar
        rest = words.removeprefix(f"{section}_")
        own = [one.removeprefix(f"{section}_") for one in known if one.startswith(f"{section}_")]
        near = [f"{section}_{one}" for one in get_close_matches(rest, own, n=1)]
    else:
        near = get_close_matches(words, known, n=1, cutoff=0.85)
        if not near:
            return None
    hint = f"Did you mean {_VARIABLES}{near[0].upper()}?" if near else f"acceld config show {section} lists the keys"
    if section == "models":
        hint = "no variable sets a value of [models.NAME]: write it into acceld.toml"
    raise ConfigError(f"variable {name}: no setting has this name", hint=hint)


_FLAGS_ALONE = tuple(
    "beam" if name == "beam_width" else name.replace("_", "-")
    for name in SEARCH_OPTIONS
    if name not in {f.name for f in fields(SearchConfig)}
)
"""Options of a search, without their dashes, that no key of acceld.toml sets."""


def _near(key: str, known: Sequence[str]) -> str:
    """Return a hint with the known key that is most like ``key``. If no key is similar, the hint says how to list the
    keys.

    Keys of one section are compared without the section's name, which would make all of them similar.
    """
    section, _, name = key.rpartition(".")
    own = [one for one in known if one.rpartition(".")[0] == section]
    if not own:
        return did_you_mean(key, known) or "acceld config show lists the keys"
    options = {flag: flag for flag in _FLAGS_ALONE} if section == "search" else {}
    named = did_you_mean(name, [*(one.rpartition(".")[2] for one in own), *options])
    if flag := next((one for one in options if f"'{one}'" in named), ""):
        return f"no key sets it: acceld optimize --{flag} does"
    if section.startswith("models."):
        return (
            named.replace("'", f"'{section}.", 1)
            or f"Its keys: {', '.join(f.name for f in fields(ModelConfig))}; docs/models.md"
        )
    elsewhere = [one for one in known if one.rpartition(".")[2] == name]
    if named:
        return named.replace("'", f"'{section}.", 1)
    return f"Did you mean {elsewhere[0]!r}?" if elsewhere else f"acceld config show {section} lists the keys"


def _find(key: str, where: str) -> tuple[Any, Field[Any]]:
    """Return the type and the field of a dotted key. Raise ConfigError, with the nearest known key, for an unknown
    key.
    """
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
                raise ConfigError(
                    f"{where}: {key!r} is a section, not a key",
                    hint=f"set a key of it; acceld config show lists the keys of [{key}]",
                )
            return kind, found
    raise ConfigError(f"{where}: there is no key {key!r}", hint="acceld config show lists the keys")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _from_text(text: str, hint: Any, where: str) -> Any:
    """Return the text of an environment variable as a value of type ``hint``; commas separate the entries of a
    list.
    """
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
    """Return ``value`` as type ``hint``. Raise ConfigError, whose message begins with ``subject``, if the value is not
    of that type.
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
    """Return the values of nested mappings in one mapping by dotted keys, such as ``search.seed``."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        found |= dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found
