"""Build the parts of a daemon from the configuration: evaluator, proposers, memory of insights, budgets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from acceld import events
from acceld.config import Config, no_model
from acceld.daemon.ledger import StoreJournal, StoreLedger
from acceld.daemon.parts import Parts
from acceld.errors import AcceldError, ConfigError, RuleRefused, UsageError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.correctness.distributions import OWN
from acceld.evaluate.correctness.gates import accuracy
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.interface import EvaluationRequest, Workplace
from acceld.evaluate.local import local
from acceld.evaluate.router import Router
from acceld.evaluate.shapes import timed_with_hidden
from acceld.events import DeviceState, Tuning
from acceld.home import Home
from acceld.llm.calls import Calls
from acceld.llm.client import LLMClient, Role
from acceld.llm.model import connect, connect_batches
from acceld.llm.settings import ModelSettings
from acceld.model import PROPOSERS, Basis, Gate, Kernel, Run, RunSpec, SearchParameters
from acceld.nki.timing.calibration import chosen, read
from acceld.nki.timing.version import model_of
from acceld.proposers.interface import Interruptible, Problem, ProblemArgument, Proposer
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.roles import RoleTable
from acceld.proposers.rules.tuner import TimedProgram
from acceld.resources import prompts_folder
from acceld.roofline import floor_of
from acceld.search.budget import Budget, LevelPassed
from acceld.search.choice import shares, yields
from acceld.search.control import RunControl
from acceld.search.loop import Search, SearchParts
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.calls import spent_by_role
from acceld.store.changes.runs import keep_host, register_workload, write_event, write_notice
from acceld.store.changes.tree import mark_started
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_plans, priced_calls, spent_usd
from acceld.targets import DEVICE_OF, SIMULATOR, TARGETS, nki_version
from acceld.watch.settings import Validation
from acceld.workloads import BASELINE_FILES, Workload, every_shape, load_workload, workload

if TYPE_CHECKING:
    from acceld.cluster.fleet import Fleet
    from acceld.cluster.host import HostFacts
    from acceld.proposers.both import BothProposer
    from acceld.proposers.llm.proposer import LLMProposer
    from acceld.proposers.rules.proposer import RulesProposer, TunedRules

TIMED_A_PLAN = 20
"""Number of kernels that a tuner times for each plan of a parent."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions of a run that its tuner of rewrites calls.

    * ``time``: times a kernel by simulation; returns None if the kernel is not legal or not timed.
    * ``write_out``: returns a kernel written out from its trace; raises RuleRefused with the reason if it has no plain
      form.
    * ``tell``: stores an event of the run.
    """

    time: Callable[[Kernel], Awaitable[TimedProgram | None]]
    write_out: Callable[[Kernel], Awaitable[str]] | None = None
    tell: Callable[[Tuning], Awaitable[object]] | None = None


log = logging.getLogger(__name__)

DAY_S = 86400


class SearchBuilder:
    """Build the search of each run from the daemon's parts."""

    def __init__(self, config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> None:
        self._config = config
        self._home = home
        self._store = store
        self._keys = keys
        self._telling: set[asyncio.Task[int]] = set()
        self._models: Calls | None = None
        self._former_models: list[Calls] = []
        self._prompts: WeakSet[PromptLibrary] = WeakSet()
        self.budget: Budget
        self._router: Router | Fleet

    async def parts(self) -> Parts:
        """Return the parts of a daemon. No model is connected before a run needs it."""
        caps = self._config.budget
        today = time.time() // DAY_S * DAY_S
        self.budget = Budget(
            day_usd=caps.day_usd,
            daemon_usd=caps.daemon_usd,
            allow_unknown_price=caps.allow_unknown_price,
            spent_today_usd=await self._store.read(spent_usd, since=today, settled=True),
            on_level=self._report_level,
        )
        fleet = self._fleet() if self._config.devices.cluster else None
        self._router = fleet or local(self._workplace)
        return Parts(
            evaluator=self._router,
            make_search=self.search,
            close=self.close,
            reload=self.reload,
            set_budget=self.budget.change_run,
            check=self.check,
            fleet=fleet,
        )

    def _workplace(self) -> Workplace:
        return Workplace(
            self._config.evaluate,
            self._config.devices,
            self._home.path,
            tuple(self._config.paths.workloads),
            on_start=self._report_started,
            on_notice=lambda run, level, text: self._store.change(write_notice, run, level, text),
            on_device=self._report_device,
        )

    def _fleet(self) -> Fleet:
        from acceld.cluster.fleet import Fleet
        from acceld.cluster.remote import RayHosts, Setup

        config = self._config
        return Fleet(
            RayHosts(config.devices.cluster, Setup(config.evaluate, replace(config.devices, cluster=""))),
            config.evaluate.queue_size,
            workload_folders=config.paths.workloads,
            on_start=self._report_started,
            on_host=self._report_device,
            on_seen=self._keep_host,
        )

    async def _keep_host(self, facts: HostFacts) -> None:
        prices = dict(one.rpartition("=")[::2] for one in self._config.devices.prices)
        price = prices.get(facts.instance_type, self._config.devices.usd_per_hour)
        await self._store.change(keep_host, asdict(facts), None if price is None else float(price))

    async def close(self) -> None:
        """Wait until all reports of budget levels are written, then close the connections to models."""
        await asyncio.gather(*self._telling, return_exceptions=True)
        for models in (*self._former_models, *([self._models] if self._models else [])):
            await models.close()

    def reload(self, found: Validation) -> None:
        """Use a changed configuration.

        Caps change at once, prompts with each run's next iteration, models and other settings for new runs only.
        """
        if found.prompts is not None:
            for library in self._prompts:
                library.offer(found.prompts)
        if found.config is None:
            return
        old, self._config = self._config, found.config
        caps = self._config.budget
        self.budget.set_caps(caps.day_usd, caps.daemon_usd, caps.allow_unknown_price)
        if (old.llm, old.models) != (self._config.llm, self._config.models) and self._models is not None:
            self._former_models.append(self._models)
            self._models = None

    async def check(self, spec: RunSpec) -> None:
        """Raise AcceldError if a run with this specification could not begin. The daemon calls this before it accepts
        a run.
        """
        found = await asyncio.to_thread(self._workload, spec.workload, spec.workload_folder)
        if spec.search.from_reference:
            _check_reference(found, spec)
        elif spec.root is None:
            await asyncio.to_thread(baseline_kernel, found, spec.api)
        await asyncio.to_thread(self._proposer, spec, found)
        if spec.search.host and not self._config.devices.cluster:
            raise UsageError(
                f"host {spec.search.host!r} was asked for, and this daemon has no fleet of hosts",
                hint="leave --host out, or name the fleet's cluster in devices.cluster (docs/fleet.md)",
            )
        if spec.backend != SIMULATOR:
            if self._config.budget.device_usd is not None and not self._config.devices.usd_per_hour:
                raise UsageError(
                    "budget.device_usd caps nothing without the machine's price: set devices.usd_per_hour too",
                    hint="in acceld.toml: [devices] usd_per_hour = 12.5",
                )
            await self._router.ready(spec.backend)

    async def search(self, run: Run, control: RunControl) -> Search:
        """Return the search of a run. Raise AcceldError if the run's workload, kernel or proposer can not be used."""
        spec = run.spec
        found = await asyncio.to_thread(self._workload, spec.workload, spec.workload_folder)
        root = await asyncio.to_thread(_root, found, spec)
        problem = await asyncio.to_thread(problem_of, found, spec.chip, spec.api)
        parameters = spec.search
        proposer = await asyncio.to_thread(self._proposer, spec, found, run.id)
        self._equip(proposer, run)
        spent = await self._store.read(spent_usd, run.id, settled=True)
        fixing_usd = (await self._store.read(spent_by_role, run.id)).get("fixer", 0.0)
        caps = (control.budget_usd, parameters.budget_usd, self._config.budget.run_usd)
        self.budget.open_run(run.id, next((cap for cap in caps if cap is not None), None), spent)
        self.budget.open_role(run.id, "fixer", parameters.fixer_usd, fixing_usd)
        teacher = None
        if parameters.memory not in ("off", "") and proposer.abilities.teaches:
            teacher = MemoryTeacher(
                run.id,
                problem,
                memory_settings(parameters),
                store=self._store,
                proposer=proposer,
                where=applicability(run.id, spec, problem),
                seed=parameters.seed,
                playbook=self._home.playbook,
            )
        await self._store.change(register_workload, found.name, definition(found))
        simulated = spec.backend == SIMULATOR
        model = await asyncio.to_thread(self._model, spec)
        context = f"{found.hash[:12]}.m{model}"
        if spec.api == "nki":
            context += f".n{await asyncio.to_thread(nki_version, self._config.evaluate.nki)}"
        basis = Basis(found.hash[:12], model if simulated else "", chip=spec.chip)
        if spec.backend in DEVICE_OF and DEVICE_OF[spec.backend].host_timed:
            # Latencies measured in another run are not reused: the other load of this machine may have been different.
            context += f".r{run.id}"
        price = self._config.devices.usd_per_hour
        cap = self._config.budget.device_usd if spec.backend in DEVICE_OF else None
        polisher, ahead = self._polisher(spec, run.id), self._config.evaluate.queue_size
        proposers: tuple[object, ...] = (proposer, polisher)
        for one in proposers:
            if isinstance(one, Interruptible):
                one.end_when(lambda: control.cancelled)
        parts = SearchParts(
            self._store, self._router, proposer, problem, root, teacher, context, basis, price, cap, polisher, ahead
        )
        return Search(run, parts, control)

    def _model(self, spec: RunSpec) -> str:
        """Return the version of the performance model for a run. A run on a device uses the uncalibrated model, because
        its predictions only decide which candidates are measured.
        """
        found = chosen(read(self._home.path), spec.chip, spec.api) if spec.backend == SIMULATOR else None
        return model_of(found)

    def _equip(self, proposer: Proposer, run: Run) -> None:
        """Give the executor its tools, if they are enabled and the simulator can run the run's API and chip."""
        from acceld.proposers.both import BothProposer
        from acceld.proposers.llm.proposer import LLMProposer
        from acceld.proposers.llm.tools import Workbench

        spec, llm = run.spec, self._config.llm
        if isinstance(proposer, BothProposer):
            proposer = proposer.models
        wanted = llm.executor.tools if spec.search.tools is None else spec.search.tools
        if not wanted or not isinstance(proposer, LLMProposer) or not _is_simulated(spec):
            return
        bench = Workbench(
            self._router.evaluate, workload=spec.workload, folder=spec.workload_folder, chip=spec.chip, run=run.id
        )
        proposer.equip(bench, llm.tools, self._calls().price)

    def _workload(self, name: str, folder: str) -> Workload:
        if folder:
            return load_workload(Path(folder))
        return workload(name, self._config.paths.workloads)

    def _proposer(self, spec: RunSpec, found: Workload, run: int = 0) -> Proposer:
        name, parameters = spec.proposer, spec.search
        if parameters.strategy == "tune" and (name not in ("rules", "both") or spec.backend != SIMULATOR):
            raise UsageError(
                f"the strategy {parameters.strategy} tunes rewrites by rules on the simulator",
                hint="--proposer rules or both, --backend simulator, or another --strategy.",
            )
        if name == "rules":
            return _rules(spec, self._callbacks(spec, run))
        if name == "both":
            asked = replace(spec, proposer="llm", search=replace(parameters, strategy="beam"))
            return both_proposer(self._proposer(asked, found, run), spec, self._callbacks(spec, run))
        if name == "command":
            from acceld.proposers.command import CommandProposer

            return CommandProposer(
                self._config.command,
                ledger=StoreLedger(self._store),
                purse=self.budget,
                plans=parameters.plans,
                accuracy=_accuracy_of(found, self._home),
            )
        if name != "llm":
            raise UsageError(f"there is no proposer {name!r}", hint=f"One of {', '.join(PROPOSERS)}.")
        prompts = PromptLibrary([*map(Path, self._config.paths.prompts), prompts_folder()])
        calls, roles = self._calls(), RoleTable.from_config(self._config)
        prompts.check()  # read all prompts now, so that a later save takes effect only if all prompts are valid
        self._prompts.add(prompts)
        return model_proposer(calls, roles, prompts, found, parameters, self._home, self._shares(run, roles))

    def _polisher(self, spec: RunSpec, run: int) -> Proposer | None:
        """Return the rules that improve the kernels of models.

        Return None unless both models and rules propose, and the simulator can run the run's API and chip.
        """
        if spec.proposer != "both" or not spec.search.polish or not _is_simulated(spec):
            return None
        return _tuner(spec, self._callbacks(spec, run), spec.search.polish)

    def _callbacks(self, spec: RunSpec, run: int) -> Callbacks:
        return Callbacks(
            partial(self._timed, spec),
            partial(self._written_out, spec),
            lambda data: self._store.change(write_event, data, run),
        )

    async def _written_out(self, spec: RunSpec, kernel: Kernel) -> str:
        """Return a kernel written out from its trace. Raise RuleRefused if it is illegal or has no plain form."""
        request = EvaluationRequest(kernel, spec.workload, spec.chip, workload_folder=spec.workload_folder)
        found = await self._router.evaluate(replace(request, gate=Gate.TIMING, written_out=True))
        if found.profile is None:
            raise RuleRefused(found.failure.message if found.failure else "it can not be timed")
        if "written_out" not in found.profile.details:
            raise RuleRefused(str(found.profile.details.get("not_written_out", "the workload has several shapes")))
        return str(found.profile.details["written_out"])

    async def _timed(self, spec: RunSpec, kernel: Kernel) -> TimedProgram | None:
        """Return the simulated latency of a kernel, without running it on data; None if it is illegal at one of the
        workload's shapes.
        """
        request = EvaluationRequest(kernel, spec.workload, spec.chip, workload_folder=spec.workload_folder)
        own = await asyncio.to_thread(self._workload, spec.workload, spec.workload_folder)
        found = await timed_with_hidden(request, own, self._router.evaluate)
        if found is None or found.latency_us is None:
            return None
        return TimedProgram(found.latency_us, found.program_sha256, found.profile)

    def _shares(self, run: int, roles: RoleTable) -> Callable[[Role, int], Awaitable[Mapping[str, float]]]:
        """Return a function (role, iteration) that gives each model's share of the role's calls, by the gains of
        earlier iterations.
        """
        known: dict[tuple[Role, int], dict[str, float]] = {}

        async def shares_of(role: Role, iteration: int) -> Mapping[str, float]:
            if (role, iteration) not in known:
                calls = await self._store.read(priced_calls, run)
                plans = await self._store.read(load_plans, run)
                candidates = await self._store.read(load_candidates, run)
                found = yields(calls, plans, candidates, role, iteration)
                known[role, iteration] = shares(dict(roles.of(role).models), found)
            return known[role, iteration]

        return shares_of

    def _calls(self) -> Calls:
        """Return all configured models as one client. Raise ConfigError if no model is configured."""
        if self._models is None:
            if not self._config.models:
                raise ConfigError(
                    no_model(),
                    hint="Add a section [models.NAME] to that file, and name the model in [llm.planner] models and [llm.executor] "
                    "models; docs/models.md has examples.",
                )
            llm, roles = self._config.llm, RoleTable.from_config(self._config)
            models, batchers, journal = {}, {}, StoreJournal(self._store)
            for name in roles.names:
                settings = ModelSettings.from_config(name, self._config.models[name], llm)
                models[name] = (settings, model := connect(settings, self._keys))
                model.on_wait = lambda run, text: self._store.change(write_notice, run, "warning", text)
                if name in roles.batched:
                    batchers[name] = connect_batches(
                        settings, journal, self._keys, quiet_s=llm.batch_quiet_s, poll_s=llm.batch_poll_s
                    )
            ledger = StoreLedger(self._store)
            self._models = Calls(models, ledger=ledger, purse=self.budget, batchers=batchers)
        return self._models

    async def _report_started(self, request: EvaluationRequest, device: str) -> None:
        if request.candidate:
            await self._store.change(mark_started, request.candidate, device)

    async def _report_device(self, device: str, state: str, reason: str) -> None:
        await self._store.change(write_event, DeviceState(device, state, reason))

    def _report_level(self, level: LevelPassed) -> None:
        data = events.BudgetLevel(level.scope, level.spent_usd, level.cap_usd, level.percent)
        task = asyncio.get_running_loop().create_task(self._store.change(write_event, data, level.run))
        self._telling.add(task)
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Task[int]) -> None:
        self._telling.discard(task)
        if not task.cancelled() and isinstance(task.exception(), AcceldError):
            log.warning("a budget level could not be recorded: %s", task.exception())


def model_proposer(
    client: LLMClient,
    roles: RoleTable,
    prompts: PromptLibrary,
    found: Workload,
    parameters: SearchParameters,
    home: Home,
    shares: Callable[[Role, int], Awaitable[Mapping[str, float]]] | None = None,
) -> LLMProposer:
    """Return the proposer that asks models about a workload, to serve a run or to show a run's prompts."""
    from acceld.proposers.llm.proposer import LLMProposer

    return LLMProposer(
        client,
        roles,
        prompts,
        plans=parameters.plans,
        fixer_steps=parameters.fixer_steps,
        planner=parameters.planner,
        knowledge=parameters.knowledge,
        shares=shares,
        accuracy=_accuracy_of(found, home),
    )


def both_proposer(models: Proposer, spec: RunSpec, callbacks: Callbacks) -> BothProposer:
    """Return the proposer in which models and rules alternate, to serve a run or to show a run's prompts.

    On the simulator the rules propose whole sequences of rewrites, the fastest by simulated latency;
    elsewhere single rewrites.
    """
    from acceld.proposers.both import BothProposer

    parameters = spec.search
    if spec.backend != SIMULATOR:
        return BothProposer(models, _rules(spec, callbacks))
    limit = TIMED_A_PLAN * parameters.plans * parameters.attempts
    return BothProposer(models, _tuner(spec, callbacks, limit, most=1))


def _rules(spec: RunSpec, callbacks: Callbacks) -> RulesProposer:
    from acceld.proposers.rules.proposer import RulesProposer

    parameters = spec.search
    if parameters.strategy == "tune":
        limit = TIMED_A_PLAN * parameters.plans * parameters.attempts
        return _tuner(spec, callbacks, limit)
    return RulesProposer(order_seed=parameters.seed if parameters.strategy == "random" else None)


def _tuner(spec: RunSpec, callbacks: Callbacks, limit: int, *, most: int | None = None) -> TunedRules:
    from acceld.proposers.rules.proposer import TunedRules

    parameters = spec.search
    within_s = parameters.time_limit_s
    return TunedRules(
        callbacks.time,
        limit=limit,
        most=most,
        within_s=within_s,
        tell=callbacks.tell,
        write_out=callbacks.write_out,
    )


def _accuracy_of(found: Workload, home: Home) -> Callable[[], str]:
    """Return a function that states which accuracy the gate demands; "" until the workload's noise was measured."""
    noise = Floors(home.path / "floors")

    def asked() -> str:
        measured = noise.of_numpy(found, OWN)
        return accuracy(found, measured.floors) if measured is not None and measured.floors else ""

    return asked


def memory_settings(parameters: SearchParameters) -> MemorySettings:
    """Return the settings of the memory of insights that a run's parameters give."""
    return MemorySettings(
        policy=parameters.memory,
        capacity=parameters.memory_size,
        top_k=parameters.top_k,
        t_pos=parameters.t_pos,
        t_neg=parameters.t_neg,
        show_simulated=parameters.show_simulated,
        own=parameters.own_insights,
    )


def applicability(run: int, spec: RunSpec, problem: Problem) -> Applicability:
    """Return the circumstances of a run (chip, API, source of latencies ...), by which insights are chosen."""
    source = TARGETS[spec.backend].source
    return Applicability(run, spec.chip, spec.api, source=source, tags=problem.tags, dtype=problem.dtype)


def _is_simulated(spec: RunSpec) -> bool:
    return spec.chip in TARGETS[SIMULATOR].chips.get(spec.api, ())


def _root(found: Workload, spec: RunSpec) -> Kernel:
    """Return the kernel with which a run begins: the given kernel, else the workload's baseline.

    A run from the reference without a given kernel begins with an empty kernel, which the first written kernel
    replaces.
    """
    if spec.search.from_reference and spec.root is None:
        entry = found.entry or "kernel"
        return Kernel("", spec.api, entry, found.grid, found.lnc, BASELINE_FILES[spec.api])
    return spec.root if spec.root is not None else baseline_kernel(found, spec.api)


def _check_reference(found: Workload, spec: RunSpec) -> None:
    """Raise UsageError if a run from the reference could get no first kernel: its proposer writes none, or the
    workload has no reference.
    """
    if not PROPOSERS[spec.proposer].writes_first:
        raise UsageError(
            "rules only change kernels, and can not write a first kernel from the reference", hint="--proposer llm"
        )
    if found.reference is None:
        raise UsageError(
            f"workload {found.name} has no reference from which models could write a first kernel",
            hint='Name a file in workload.toml, reference = "reference.py", or give a kernel.',
        )


def problem_of(found: Workload, chip: str, api: str) -> Problem:
    """Return the facts of a workload that a proposer may know."""
    arguments = tuple(
        ProblemArgument(one.name, one.kernel_shape, one.dtype)
        if one.value is None
        else ProblemArgument(one.name, value=one.value)
        for one in found.arguments
    )
    reference = found.reference.read_text(encoding="utf-8") if found.reference else ""
    return Problem(
        workload=found.name,
        description=found.description + _also_for(found),
        reference_source=reference,
        arguments=arguments,
        chip=chip,
        api=api,
        tags=tuple(sorted(found.tags)),
        tolerance=found.tolerance,
        dtype="+".join(sorted({one.dtype for one in found.arguments if one.value is None})),
        precision=found.precision,
        floor=None if found.shapes else floor_of(found, chip),
    )


def _also_for(found: Workload) -> str:
    """Return sentences on the other shapes that a kernel must support or is checked at; "" if there are none."""
    hidden = (
        f". The kernel is also tried at other values of {', '.join(found.hidden[0])}, which you do not know: take sizes from "
        "the arguments' shapes"
        if found.hidden
        else ""
    )
    if not found.shapes:
        return hidden
    shapes = ", ".join(f"{shape.text} (weight {shape.weight:g})" for shape, _ in every_shape(found))
    return (
        f". One kernel serves these shapes: {shapes}. It must be right at each, and its speed-up is the weighted geometric "
        f"mean of its speed-ups there. The arguments are listed with the first{hidden}"
    )


def definition(found: Workload) -> dict[str, object]:
    """Return the definition of a workload as data, for the history."""
    return {
        "name": found.name,
        "family": found.family,
        "description": found.description,
        "hash": found.hash,
        "inputs": [{"name": a.name, "shape": a.shape, "dtype": a.dtype, "value": a.value} for a in found.arguments],
        "outputs": [{"name": o.name, "shape": o.shape, "dtype": o.dtype} for o in found.outputs],
        "tolerance": found.tolerance,
        "tags": sorted(found.tags),
        **(
            {"shapes": [{"shape": one.text, "weight": one.weight} for one, _ in every_shape(found)]}
            if found.shapes
            else {}
        ),
    }


async def build_parts(config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> Parts:
    """Return the parts of a daemon that evaluates and searches."""
    return await SearchBuilder(config, home, store, keys).parts()
