"""``acceld optimize --dry-run``: estimate the calls, the cost and the time of a run before it begins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict, replace

from acceld import figures
from acceld.cli.output import print_json, print_pairs, print_table
from acceld.cli.show_prompts import CODE, requests_of
from acceld.config import Config
from acceld.home import Home
from acceld.llm.client import ROLES, CompletionRequest, Role
from acceld.llm.errors import LLMError
from acceld.llm.model import counter
from acceld.llm.pricing import PriceBook
from acceld.llm.providers.anthropic import AnthropicClient
from acceld.llm.settings import ModelSettings
from acceld.llm.usage import estimated_tokens
from acceld.model import PROPOSERS, Gate, RunSpec
from acceld.proposers.llm.roles import RoleTable
from acceld.search.forecast import FAILING, Forecast, Habits, PromptLength, forecast
from acceld.search.loop import FIXABLE
from acceld.store.connection import connect_reader
from acceld.store.reads.records import answer_tokens, failing_share
from acceld.targets import SIMULATOR
from acceld.workloads import Workload, load_workload

UNPRICED = "under a cap in USD calls are refused; declare input_usd_per_mtok and output_usd_per_mtok"
COUNTED, ESTIMATED = "counted by the provider", "estimated from characters"
FIRST_LENGTH = 3
"""Assumed length of a first kernel, as a multiple of the length of its reference."""


def dry_run(spec: RunSpec, settings: Config, home: Home, *, as_json: bool) -> int:
    """Print the expected calls, tokens, USD, device hours and time of a run. Raise ConfigError if its models
    can not be used.
    """
    found, tokens_by_model = _forecast(spec, settings, home)
    unpriced = _unpriced(spec, settings)
    measures = spec.backend != SIMULATOR
    cost_usd, worst_usd = found.cost_usd, found.worst_usd
    # Proposals come from the user's own program, of whose cost acceld knows only the cap.
    if PROPOSERS[spec.proposer].uses_models and not found.roles:
        cap = settings.command.usd
        cost_usd, worst_usd = None, None if cap is None else cap * found.candidates
    cap_usd = spec.search.budget_usd
    capped = f"; the cap ends the run at {figures.usd(cap_usd)}" if cap_usd is not None else ""
    if as_json:
        print_json(
            {
                "workload": spec.workload,
                "proposer": spec.proposer,
                "candidates": found.candidates,
                "calls": found.calls,
                "cost_usd": cost_usd,
                "worst_usd": worst_usd,
                "cap_usd": cap_usd,
                "device_hours": found.device_hours,
                "device_usd": found.device_usd,
                "wall_s": found.wall_s,
                "roles": [asdict(role) for role in found.roles],
                "prompt_tokens": tokens_by_model,
                "unpriced": unpriced,
            }
        )
        return 0
    print_pairs(
        [
            ("run", f"{spec.workload}, proposals by {spec.proposer}, preset {spec.preset}; nothing was started"),
            ("candidates", f"at most {found.candidates}"),
            ("model calls", str(found.calls)),
            *([("prompt tokens", _told(tokens_by_model))] if tokens_by_model else []),
            ("models", f"{figures.usd(cost_usd)} expected, {figures.usd(worst_usd)} at worst{capped}"),
            *([("no price", f"{', '.join(unpriced)}: {UNPRICED}")] if unpriced else []),
            *([("devices", f"{found.device_hours:.2f} h, {figures.usd(found.device_usd)}")] if measures else []),
            ("time", _time(spec, found)),
        ]
    )
    if found.roles:
        print()
        rows = [
            (
                r.role,
                str(r.calls),
                f"{r.input_tokens:,}",
                f"{r.cached_tokens:,}",
                f"{r.output_tokens:,}",
                figures.usd(r.cost_usd),
            )
            for r in found.roles
        ]
        print_table(
            rows, ("role", "calls", "tokens in", "cached", "tokens out", "expected"), right=frozenset(range(1, 6))
        )
    return 0


def _time(spec: RunSpec, found: Forecast) -> str:
    """Return in words how long the run takes. A search by rules is limited, not estimated: it times most candidates without
    running them on data, and ends once no rewrite is faster.
    """
    limit_s = spec.search.time_limit_s
    wall = figures.elapsed(min(found.wall_s, limit_s) if limit_s else found.wall_s)
    if found.calls or spec.backend != SIMULATOR or PROPOSERS[spec.proposer].uses_models:
        return f"about {wall}"
    return f"at most {wall}, if every candidate is run on data and takes {Habits().evaluation_s:g} s; mostly far less"


def _unpriced(spec: RunSpec, settings: Config) -> list[str]:
    """Return the names of the run's models whose price is not known."""
    if not PROPOSERS[spec.proposer].asks_models:
        return []
    book = PriceBook()
    found = {
        name: ModelSettings.from_config(name, settings.models[name], settings.llm)
        for name in RoleTable.from_config(settings).names
    }
    return [name for name, model in found.items() if model.price_in(book, tier="") is None]


def _told(tokens_by_model: Mapping[str, str]) -> str:
    """Return in words for which models prompt tokens were counted, and for which they were estimated.
    ``tokens_by_model`` has, by model, the words for how its tokens were found.
    """
    ways: dict[str, list[str]] = {}
    for name, way in tokens_by_model.items():
        ways.setdefault(way, []).append(name)
    return "; ".join(f"{', '.join(names)}: {way}" for way, names in ways.items())


def _forecast(spec: RunSpec, settings: Config, home: Home) -> tuple[Forecast, dict[str, str]]:
    """Return the forecast of the run, and for each model how the tokens of its prompts were found."""
    workload = load_workload(spec.workload_folder)
    reference = workload.reference.read_text(encoding="utf-8") if workload.reference else ""
    if spec.search.from_reference:
        kernel = reference * FIRST_LENGTH
    else:
        kernel = spec.root.text if spec.root else workload.baselines[spec.api].read_text(encoding="utf-8")
    roles = RoleTable.from_config(settings) if PROPOSERS[spec.proposer].asks_models else None
    models = {
        name: ModelSettings.from_config(name, settings.models[name], settings.llm)
        for name in (roles.names if roles is not None else ())
    }
    lengths, tokens_by_model = None, dict[str, str]()
    if roles is not None:
        lengths, tokens_by_model = asyncio.run(_lengths(spec, settings, home, workload, kernel, roles, models))
    book = PriceBook()
    found = forecast(
        spec.search,
        roles,
        lambda name, input_tokens: models[name].price_in(book, input_tokens),
        dearest=lambda name, input_tokens: models[name].price_in(book, input_tokens, tier=""),
        kernel_chars=len(kernel),
        reference_chars=len(reference),
        prompts=lengths,
        habits=_habits(roles, home, settings.devices.usd_per_hour),
        share=0.5 if spec.proposer == "both" else 1.0,
        concurrency={name: model.limits.concurrency for name, model in models.items()},
    )
    return found, tokens_by_model


async def _lengths(
    spec: RunSpec,
    settings: Config,
    home: Home,
    workload: Workload,
    kernel: str,
    roles: RoleTable,
    models: Mapping[str, ModelSettings],
) -> tuple[dict[Role, PromptLength], dict[str, str]]:
    """Return, by role, the mean length of the prompts that the run would send first, and for each model how
    these lengths were found.

    If a prompt has a placeholder for an answer, the answer is taken to have the length of a kernel.
    """
    requests = {
        request.role: replace(request, user=request.user + kernel * request.user.count(CODE.strip()))
        for request in await requests_of(spec, settings, home, workload, Gate.TIMING)
    }
    found = {}
    for name, model in models.items():
        asked = {role: one for role, one in requests.items() if name in dict(roles.of(role).models)}
        found[name] = await _measured(model, asked)
    means = {}
    for role in requests:
        shares = roles.of(role).models
        total = sum(weight for _, weight in shares)
        means[role] = PromptLength(
            round(sum(weight * found[name][0][role].shared for name, weight in shares) / total),
            round(sum(weight * found[name][0][role].own for name, weight in shares) / total),
        )
    return means, {name: way for name, (_, way) in found.items()}


async def _measured(
    model: ModelSettings, requests: Mapping[Role, CompletionRequest]
) -> tuple[dict[Role, PromptLength], str]:
    """Return the lengths of prompts for one model by role, and whether the provider counted them or acceld
    estimated them.
    """
    client = counter(model)
    if client is not None:
        try:
            return {role: await _counted(client, request) for role, request in requests.items()}, COUNTED
        except LLMError as error:
            return _estimated(requests), f"{ESTIMATED}, because the provider did not count them: {error.message}"
        finally:
            await client.close()
    return _estimated(requests), ESTIMATED


async def _counted(client: AnthropicClient, request: CompletionRequest) -> PromptLength:
    whole = await client.count(request)
    if request.role == "summarizer":
        return PromptLength(0, whole)
    shared = min(
        whole, await client.count(replace(request, user="."))
    )  # providers refuse to count a request without a user's message
    return PromptLength(shared, whole - shared)


def _estimated(requests: Mapping[Role, CompletionRequest]) -> dict[Role, PromptLength]:
    found = {}
    for role, request in requests.items():
        shared, own = estimated_tokens(request.system), estimated_tokens(request.user)
        found[role] = PromptLength(0, shared + own) if role == "summarizer" else PromptLength(shared, own)
    return found


def _habits(roles: RoleTable | None, home: Home, usd_per_hour: float | None) -> Habits:
    """Return the averages of the calls in the history that the run's models answered, with defaults for roles
    that have no such calls.
    """
    if roles is None or not home.database.is_file():
        return Habits(device_usd_per_hour=usd_per_hour)
    with contextlib.closing(connect_reader(home.database)) as connection:
        found = {role: answer_tokens(connection, role, [name for name, _ in roles.of(role).models]) for role in ROLES}
        executors = [name for name, _ in roles.executor.models]
        failing = failing_share(connection, executors, sorted(FIXABLE))
    return Habits(
        answer_tokens={role: tokens for role, tokens in found.items() if tokens is not None},
        failing=FAILING if failing is None else failing,
        device_usd_per_hour=usd_per_hour,
    )
