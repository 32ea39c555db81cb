"""Read configuration, models, prompts and workloads for ``acceld doctor PART``, and report what is wrong.

Nothing is sent to models, except with ``--call``: then each model gets one tiny question, which costs money.
With ``--admit`` the references of workloads are run in the sandbox. That shows whether a constant output could
pass, and whether every input matters.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from acceld import figures
from acceld.cli.output import print_json, print_table, say
from acceld.config import Config, load, settings_file
from acceld.errors import AcceldError, CredentialError, UsageError
from acceld.home import Home, find_home
from acceld.trust import trusted_folders

if TYPE_CHECKING:
    from acceld.evaluate.correctness.admission import Admission, Admissions
    from acceld.llm.settings import ModelSettings
    from acceld.proposers.llm.roles import RoleTable
    from acceld.workloads import Workload

UNPRICED = "declare input_usd_per_mtok and output_usd_per_mtok"


def run(arguments: argparse.Namespace, parts: Sequence[str]) -> int:
    """Print a line for each setting, model, prompt or workload of the parts. Return 4 if only API keys of models are
    missing or refused, 2 if there is another error.
    """
    home = find_home(arguments.home)
    found = list(findings(parts, home, arguments.admit, arguments.call))
    codes = {finding.exit_code for finding in found if finding.problem}
    if arguments.json:
        keys = ("part", "name", "problem", "note")
        print_json({"ok": not codes, "checked": [{key: getattr(one, key) for key in keys} for one in found]})
    else:
        rows = [[one.part, one.name, one.problem or ("ok" if not one.note else f"ok: {one.note}")] for one in found]
        if rows:
            print_table(rows, ["part", "name", "state"])
        else:
            say(f"nothing to check: no {' and no '.join(parts)} configured")
    return min(codes, default=0)


class Finding(NamedTuple):
    """One setting, model, prompt or workload, with its problem (empty if there is none) and a note."""

    part: str
    name: str
    problem: str = ""
    note: str = ""
    exit_code: int = UsageError.exit_code
    """Exit code of the problem: that of CredentialError if a model's key is missing or refused."""


def findings(parts: Sequence[str], home: Home, admit: Sequence[str] | None, call: bool) -> Iterator[Finding]:
    """Yield a finding for each setting, model, prompt or workload."""
    try:
        resolved = load(trusted_folders=trusted_folders())
    except AcceldError as error:
        yield Finding("config", str(settings_file()), str(error))
        return
    if "config" in parts:
        yield from (Finding("config", str(path)) for path in resolved.files or ())
        if not resolved.files:
            yield Finding("config", "defaults")
    if "models" in parts:
        yield from _models(resolved.config, call)
    if "prompts" in parts:
        yield from (Finding("prompts", name, problem) for name, problem in _prompts(resolved.config))
    if "workloads" in parts:
        for name, problem, note in _workloads(resolved.config, home, admit):
            yield Finding("workloads", name, problem, note)


def _models(config: Config, call: bool) -> Iterator[Finding]:
    """Yield a finding for each model and for the roles. A note says that the price is unknown, that the model is
    withdrawn soon, or what a call gave.
    """
    from acceld.llm.pricing import PriceBook
    from acceld.llm.retirement import retirement
    from acceld.llm.settings import ModelSettings
    from acceld.proposers.llm.roles import RoleTable

    book, budget = PriceBook(), config.budget
    capped = any(cap is not None for cap in (budget.run_usd, budget.day_usd, budget.daemon_usd))
    for name, section in config.models.items():
        try:
            model = ModelSettings.from_config(name, section, config.llm)
            model.key()
            unpriced = model.price_in(book, tier="") is None
            if unpriced and capped and not budget.allow_unknown_price:
                problem = f"its price is not known, so the cap in USD refuses its calls; {UNPRICED}"
                yield Finding("models", name, problem)
                continue
            notes = [f"its price is not known; {UNPRICED}" if unpriced else "", retirement(model)]
            if call:
                notes[0] = asyncio.run(_call(model))
            yield Finding("models", name, note="; ".join(filter(None, notes)))
        except CredentialError as error:
            yield Finding("models", name, str(error), exit_code=error.exit_code)
        except (AcceldError, ValueError) as error:
            yield Finding("models", name, str(error))
    if config.models:
        try:
            table = RoleTable.from_config(config)
            yield Finding("models", "roles", note="; ".join(_without_temperature(config, table)))
        except AcceldError as error:
            yield Finding("models", "roles", str(error))


def _without_temperature(config: Config, table: RoleTable) -> Iterator[str]:
    """Yield a sentence for each role whose temperature is not sent to one of its models, because acceld sends no
    temperature to the API of that model.
    """
    from acceld.llm.client import ROLES
    from acceld.llm.settings import ModelSettings

    for role in ROLES:
        models = table.of(role)
        for name, _ in models.models if models.temperature is not None else ():
            if ModelSettings.from_config(name, config.models[name], config.llm).api == "messages":
                yield f"the temperature of the {role} is not sent to {name}: Anthropic's models take none"


async def _call(settings: ModelSettings) -> str:
    """Ask a model one tiny question. Return cost, latency, and the settings that the model refused, in words."""
    from acceld.llm.calls import Calls
    from acceld.llm.client import CompletionRequest
    from acceld.llm.ledger import MemoryLedger
    from acceld.llm.model import connect
    from acceld.search.budget import Budget

    model, ledger = connect(settings), MemoryLedger()
    calls = Calls({settings.name: (settings, model)}, ledger=ledger, purse=Budget())
    question = CompletionRequest("planner", settings.name, "", "Answer with the one word ok.", 512, 0.5, 1)
    try:
        answer = await calls.complete(question)
    finally:
        await calls.close()
    (outcome,) = ledger.outcomes.values()
    said = f"{figures.usd(outcome.cost_usd)}, {answer.latency_s:.1f} s, answered by {answer.model}"
    return said + (f"; the model does not take {', '.join(model.dropped)}" if model.dropped else "")


def _prompts(config: Config) -> Iterator[tuple[str, str]]:
    from acceld.proposers.llm.prompts import APIS, PromptLibrary
    from acceld.resources import prompts_folder

    library = PromptLibrary([*map(Path, config.paths.prompts), prompts_folder()])
    for api in APIS:
        yield api, "; ".join(library.check([api]))


def _workloads(config: Config, home: Home, admit: Sequence[str] | None) -> Iterator[tuple[str, str, str]]:
    """Yield each workload's name, its problem, and its admission in words. If ``admit`` names workloads, yield only
    these.
    """
    from acceld.evaluate.correctness.admission import Admissions
    from acceld.workloads import load_workload, workload
    from acceld.workloads.discovery import workload_folders

    named = [workload(name, config.paths.workloads) for name in admit or ()]
    folders = {one.name: one.folder.resolve() for one in named}
    folders = folders or dict(sorted(workload_folders(config.paths.workloads).items()))
    admissions = Admissions(home.path / "floors")
    read: dict[str, Workload | str] = {}
    for name, folder in folders.items():
        try:
            read[name] = load_workload(folder)
        except AcceldError as error:
            read[name] = str(error)
    asked = [] if admit is None else list(read.values())
    tried = asyncio.run(_admit(config, home, admissions, [one for one in asked if not isinstance(one, str)]))
    for name, one in read.items():
        if isinstance(one, str):
            yield name, one, ""
            continue
        found = tried.get(one.hash) or admissions.known(one)
        if isinstance(found, str):
            yield name, found, ""
        elif found is None:
            yield name, "", "admission not tried yet (--admit tries it)"
        else:
            yield name, found.complaint, found.text


async def _admit(
    config: Config, home: Home, admissions: Admissions, asked: Sequence[Workload]
) -> dict[str, Admission | str]:
    """Check the references of workloads that were not checked yet. Return, by hash, the result or the error."""
    from acceld.evaluate.sandbox.ladder import probe_level
    from acceld.evaluate.simulated.children import Children

    tried: dict[str, Admission | str] = {}
    if not asked:
        return tried
    home.prepare()
    report = await probe_level()
    children = Children(config.evaluate, home.path, report.level, report.cgroup_folder)
    await children.start()
    try:
        for loaded in asked:
            say(f"admitting {loaded.name}")
            try:
                tried[loaded.hash] = await admissions.of(loaded, children.admit)
            except AcceldError as error:
                tried[loaded.hash] = str(error)
    finally:
        await children.stop()
    return tried
