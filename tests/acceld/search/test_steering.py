"""Actions of people on a run that works: the next decision follows them, and the replay decides the same."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from acceld.evaluate.interface import EvaluationRequest
from acceld.events import BeamSelected, IterationStarted, Notice, Steered
from acceld.model import Evaluation, Gate, Plan, Run, RunState
from acceld.proposers.interface import PlanRequest
from acceld.search.control import RunControl, control_from
from acceld.search.replay import differences, recording
from acceld.store.changes.runs import write_steered
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_events, load_run, steering_events
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, SearchMaker, new_run
from tests.properties import one_in

FACTORS = [1.1, 0.9, 0.8, 0.95, 0.7]


async def ask(store: Store, run: Run, control: RunControl, action: str, **arguments: object) -> None:
    """Steer as the daemon does: change the control and submit the event without an await in between."""
    result = control.steer(action, arguments)
    await store.change(write_steered, run.id, action, arguments, "me", result)


def again(path: Path, run: int) -> list[str]:
    """Return the decisions that the replay makes otherwise."""
    with contextlib.closing(connect_reader(path)) as connection:
        return [one.what for one in differences(recording(connection, run))[0]]


class Interrupted(ScriptedEvaluator):
    """Has people steer the run while a gate runs."""

    def __init__(self, store: Store, run: Run, control: RunControl, actions: list[tuple[Gate, str]]) -> None:
        super().__init__()
        self.store, self.run, self.control, self.actions = store, run, control, actions
        self.asked: list[int] = []

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        if (
            self.actions
            and request.gate is self.actions[0][0]
            and request.candidate
            and " attempt" in request.kernel.text
        ):
            _, action = self.actions.pop(0)
            self.asked.append(request.candidate)
            await ask(self.store, self.run, self.control, action, candidate=request.candidate)
        return found


async def beams(store: Store, run: Run) -> list[tuple[int, ...]]:
    events = await store.read(load_events, 0, run.id, 10_000)
    return [event.data.beam for event in events if isinstance(event.data, BeamSelected)]


async def test_a_veto_during_the_strict_gate_keeps_the_candidate_out(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    run, control = await new_run(store, iterations=1, patience=0), RunControl()
    evaluator = Interrupted(store, run, control, [(Gate.STRICT, "veto")])
    await search_for(run, evaluator, ListedProposer(FACTORS), control).run()
    assert evaluator.asked and all(evaluator.asked[0] not in beam for beam in await beams(store, run))
    assert (await store.read(load_run, run.id)).best != evaluator.asked[0]
    assert again(tmp_path / "acceld.db", run.id) == []


async def test_a_pin_while_a_slow_candidate_is_only_timed_keeps_it_in_the_beam(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    run, control = await new_run(store, iterations=2, patience=0, beam_width=2), RunControl()
    evaluator = Interrupted(store, run, control, [(Gate.TIMING, "pin")])
    await search_for(run, evaluator, ListedProposer([0.99, 0.8, 0.7]), control).run()
    assert all(evaluator.asked[0] in beam for beam in await beams(store, run))
    assert again(tmp_path / "acceld.db", run.id) == []


async def test_a_pin_of_an_earlier_candidate_brings_it_back(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    run, control = await new_run(store, iterations=3, patience=0, beam_width=1), RunControl()
    early: list[int] = []

    class Late(ListedProposer):
        async def plan(self, request: PlanRequest) -> Plan | None:
            if request.iteration == 3 and not early:
                early.append(request.parent.parent or 0)
                await ask(store, run, control, "pin", candidate=early[0])
            return await super().plan(request)

    await search_for(run, ScriptedEvaluator(), Late([0.9]), control).run()
    assert (await beams(store, run))[-1] == (early[0],)
    assert again(tmp_path / "acceld.db", run.id) == []


async def test_a_run_whose_every_candidate_is_vetoed_goes_on_from_its_baseline(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    run, control = await new_run(store, iterations=2, patience=0), RunControl()

    class Vetoing(ListedProposer):
        async def plan(self, request: PlanRequest) -> Plan | None:
            await ask(store, run, control, "veto", candidate=request.parent.id)
            return None

    assert await search_for(run, ScriptedEvaluator(), Vetoing([]), control).run() is RunState.FINISHED
    assert await beams(store, run) == [((await store.read(load_run, run.id)).baseline,)]
    assert again(tmp_path / "acceld.db", run.id) == []


@pytest.mark.parametrize("strategy", one_in(3, ["beam", "reflexion", "best_of_n"]))
async def test_actions_at_any_moment_are_followed_and_replay(
    store: Store, search_for: SearchMaker, tmp_path: Path, strategy: str
) -> None:
    for seed in range(3):
        run, control = await new_run(store, iterations=3, patience=0, strategy=strategy), RunControl()
        draw, over = random.Random(seed), asyncio.Event()

        async def steer(
            run: Run = run, control: RunControl = control, draw: random.Random = draw, over: asyncio.Event = over
        ) -> None:
            while not over.is_set():
                known = [one.id for one in await store.read(load_candidates, run.id)]
                if known and not control.ended:
                    action = draw.choice(["pin", "veto", "unpin", "unveto", "veto", "branch"])
                    await ask(store, run, control, action, candidate=draw.choice(known))
                await asyncio.sleep(draw.random() * 0.01)

        steering = asyncio.create_task(steer())
        await search_for(run, ScriptedEvaluator(seed, 0.004), ListedProposer(FACTORS), control).run()
        over.set()
        await steering
        assert again(tmp_path / "acceld.db", run.id) == []
        await follow_vetoes(store, run)


async def follow_vetoes(store: Store, run: Run) -> None:
    """Check that no decision contains what was vetoed when it was stored."""
    vetoed: set[int] = set()
    record = await store.read(load_run, run.id)
    for event in await store.read(load_events, 0, run.id, 10_000):
        match event.data:
            case Steered(action="veto", arguments=arguments):
                vetoed.add(arguments["candidate"])
            case Steered(action="unveto" | "pin", arguments=arguments):
                vetoed.discard(arguments["candidate"])
            case BeamSelected(beam=beam):
                assert beam == (record.baseline,) or run.spec.search.strategy == "reflexion" or not vetoed & set(beam)


async def test_a_branch_that_no_iteration_took_yet_survives_a_restart(store: Store, search_for: SearchMaker) -> None:
    run, control = await new_run(store, iterations=1, patience=0), RunControl()
    await search_for(run, ScriptedEvaluator(), ListedProposer(FACTORS), control).run()
    first, second, *_ = (one.id for one in await store.read(load_candidates, run.id) if one.parent)
    await ask(store, run, control, "branch", candidate=first)
    await ask(store, run, control, "hint", text="fuse")
    await ask(store, run, control, "budget", usd=2)
    restored = control_from(await store.read(steering_events, run.id))
    assert (restored.branches, restored.hints, restored.budget_usd) == ([first], ["fuse"], 2.0)
    await store.change(lambda tx: tx.event(IterationStarted(iteration=2, beam=(first,)), run.id))
    await ask(store, run, control, "branch", candidate=second)
    assert control_from(await store.read(steering_events, run.id)).branches == [second]


async def test_an_open_iteration_continues_with_the_parents_that_it_began_with(
    store: Store, search_for: SearchMaker, tmp_path: Path
) -> None:
    run, control = await new_run(store, iterations=2, patience=0), RunControl()

    class CutOff(ListedProposer):
        async def plan(self, request: PlanRequest) -> Plan | None:
            if request.iteration == 2:
                raise OSError("cut off")
            return await super().plan(request)

    with pytest.raises(ExceptionGroup):
        await search_for(run, ScriptedEvaluator(), CutOff(FACTORS), control).run()
    began = [e.data.beam for e in await store.read(load_events, 0, run.id) if isinstance(e.data, IterationStarted)][-1]
    await ask(store, run, control, "veto", candidate=began[0])
    restored = control_from(await store.read(steering_events, run.id))
    asked: list[int] = []

    class Noting(ListedProposer):
        async def plan(self, request: PlanRequest) -> Plan | None:
            asked.append(request.parent.id)
            return await super().plan(request)

    await search_for(run, ScriptedEvaluator(), Noting(FACTORS), restored).run()
    assert set(asked) == set(began)
    assert began[0] not in (await beams(store, run))[-1]
    assert again(tmp_path / "acceld.db", run.id) == []


async def test_a_cancel_during_the_last_gate_cancels_the_run(store: Store, search_for: SearchMaker) -> None:
    run, control = await new_run(store, iterations=1, patience=0), RunControl()

    class Cancelling(ScriptedEvaluator):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if request.gate is Gate.STRICT:
                control.cancel()
            return await super().evaluate(request)

    assert await search_for(run, Cancelling(), ListedProposer(FACTORS), control).run() is RunState.CANCELLED


async def test_what_no_decision_could_follow_any_more_is_reported(store: Store, search_for: SearchMaker) -> None:
    run, control = await new_run(store, iterations=1, patience=0), RunControl()
    proposer = ListedProposer(FACTORS)

    class Late(ScriptedEvaluator):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if request.gate is Gate.STRICT and not control.hints:
                await ask(store, run, control, "hint", text="fuse")
            return await super().evaluate(request)

    await search_for(run, Late(), proposer, control).run()
    notices = [e.data.text for e in await store.read(load_events, 0, run.id) if isinstance(e.data, Notice)]
    assert notices == [f"r{run.id} ended before a decision could take into account: hint fuse"]
    assert control.ended
