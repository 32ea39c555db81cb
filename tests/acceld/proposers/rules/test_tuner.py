"""Sequences of rewrites: the tuner's results, their cost, and their way to candidates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from acceld.events import Tuning
from acceld.model import Candidate, Kernel, Plan, Profile, Source
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import program_hash
from acceld.nki.source.launches import Launch
from acceld.nki.timing.timeline import timeline
from acceld.proposers.both import BothProposer
from acceld.proposers.interface import AppliedPlan, AttemptRequest, Partner, PlanRequest, Problem, ProblemArgument
from acceld.proposers.rules.proposer import RulesProposer, TunedRules, moves
from acceld.proposers.rules.tuner import (
    Move,
    Outcome,
    TimedProgram,
    Tuned,
    Tuner,
    repeated,
    tune,
    without_idle_steps,
)
from tests.acceld.proposers.rules.kernels import line_of
from tests.acceld.proposers.rules.places import (
    CHUNKS,
    DRAIN_FED,
    DRAIN_FED_SHAPES,
    LOADED_FIRST,
    LOADED_FIRST_SHAPES,
    SILU,
    STAGES_NORMED,
    STAGES_NORMED_SHAPES,
    TURNED_PARTS,
)

# Kernels of letters: a and b pay only together, c always does, d is the same program as c.
LATENCIES = {"": 10.0, "a": 11.0, "ab": 4.0, "b": 12.0, "c": 9.0, "abc": 3.0, "ac": 10.5, "bc": 11.5}


def letters(text: str, profile: Profile | None) -> list[Move]:
    """Return one move for each letter that the text lacks."""
    return [Move(one, one, 0.1, partial("".join, sorted({*text, one}))) for one in "abcd" if one not in text]


class Clock:
    """Latencies of kernels made of letters; counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, text: str) -> TimedProgram | None:
        self.asked.append(text)
        program = "".join(sorted(set(text.replace("d", "c"))))
        return TimedProgram(LATENCIES[program], program)


async def test_the_tuner_finds_steps_that_pay_only_together() -> None:
    clock = Clock()
    tuner = Tuner(clock, letters, limit=200)
    root = await tuner.root("")
    assert root is not None
    await tune(tuner, root)
    best = tuner.fastest(1)[0]
    assert best.latency_us == 3.0 and {"a", "b"} <= set(best.steps)
    assert len(clock.asked) == len(set(clock.asked)) and set(tuner.seen) <= set(LATENCIES)


async def test_the_limit_is_the_number_of_timed_kernels() -> None:
    clock = Clock()
    tuner = Tuner(clock, letters, limit=5)
    root = await tuner.root("")
    assert root is not None
    await tune(tuner, root)
    assert len(clock.asked) == 1 + 5 and tuner.left == 0


async def test_a_rule_with_many_places_leaves_room_for_another_that_promises_nearly_as_much() -> None:
    def many(text: str, profile: Profile | None) -> list[Move]:
        places = [Move(f"a{number}", "a", 0.3, partial(str, f"{text} a{number}")) for number in range(20)]
        return [*places, Move("b", "b", 0.2, partial(str, f"{text} b"))] if text == "root" else []

    asked: list[str] = []

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(10.0, text)

    tuner = Tuner(clock, many, limit=8)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert asked[1:4] == ["root a0", "root b", "root a1"]


async def test_several_kernels_are_handed_to_the_clock_together() -> None:
    together: list[int] = []

    class Watched(Tuner):
        async def time(self, tries: Sequence[tuple[Tuned, int]]) -> list[Outcome]:
            together.append(len(tries))
            return await super().time(tries)

    tuner = Watched(Clock(), letters, limit=200)
    root = await tuner.root("")
    assert root is not None
    await tune(tuner, root)
    assert max(together) > 1


async def test_a_kernel_that_can_not_be_timed_is_gone_on_from_by_nobody() -> None:
    async def nothing(text: str) -> TimedProgram | None:
        return None if text else TimedProgram(1.0, "")

    tuner = Tuner(nothing, letters, limit=50)
    root = await tuner.root("")
    assert root is not None
    await tune(tuner, root)
    assert tuner.fastest() == [root] and tuner.left == 50 - 4


async def test_a_slow_kernel_whose_engines_have_little_work_is_extended_before_faster_ones_that_are_busy() -> None:
    asked: list[str] = []

    def either(text: str, profile: Profile | None) -> list[Move]:
        done = set(text.split())
        busy = [Move(f"r{n}", f"r{n}", 0.2, partial(str, f"{text} r{n}")) for n in range(9) if f"r{n}" not in done]
        rare = [Move(one, one, 0.1, partial(str, f"{text} {one}")) for one in "ab" if one not in done]
        return [*busy, *rare[:1]]

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        done = set(text.split())
        slow, overlapped = "a" in done, {"a", "b"} <= done
        latency_us = (5.0 if overlapped else 12.0 if slow else 10.0) - 0.01 * len(done)
        profile = Profile(
            Source.SIMULATED, "trn2", "nki_legacy", latency_us, "m", engines_us={"vector": 4.0 if slow else 9.5}
        )
        return TimedProgram(latency_us, text, profile)

    tuner = Tuner(clock, either, limit=60)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert {"a", "b"} <= set(tuner.fastest(1)[0].steps)


async def test_the_fastest_kernel_does_not_take_a_whole_round() -> None:
    asked: list[str] = []

    def either(text: str, profile: Profile | None) -> list[Move]:
        names = ("fast", "slower") if text == "root" else [f"{text.split()[0]}{n}" for n in range(6)]
        return [Move(one, one, 0.1, partial(str, f"{text} {one}".removeprefix("root "))) for one in names]

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(9.0 if text.startswith("fast") else 10.0 if text == "root" else 9.9, text)

    tuner = Tuner(clock, either, limit=6)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert asked[:3] == ["root", "fast", "slower"]
    assert {one.split()[0] for one in asked[3:]} == {"fast", "slower"}


async def test_an_exchange_back_is_neither_timed_nor_counted_nor_offered() -> None:
    def exchange(text: str, profile: Profile | None) -> list[Move]:
        other = {"left": "right", "right": "left"}[text.split()[0]]
        more = [Move(f"m{n}", "m", 0.2, partial(str, f"{text} m{n}")) for n in range(3) if f"m{n}" not in text]
        return [Move(f"to {other}", "exchange", 0.3, partial(str, " ".join([other, *text.split()[1:]]))), *more]

    class Watched(Tuner):
        async def time(self, tries: Sequence[tuple[Tuned, int]]) -> list[Outcome]:
            for one, place in tries:
                offered.append([(await self.moves(one))[place].step, one.text])
            return await super().time(tries)

    async def clock(text: str) -> TimedProgram:
        return TimedProgram((8.0 if text.startswith("right") else 10.0) - 0.1 * len(text.split()), text)

    offered: list[list[str]] = []
    tuner = Watched(clock, exchange, limit=500)
    root = await tuner.root("left")
    assert root is not None
    (there,) = await tuner.time([(root, 0)])
    assert there.new is not None and there.saved is not None and abs(there.saved - 2.0 / 9.9) < 1e-9
    assert await tuner.time([(there.new, 0)]) == [Outcome(None, None)] and tuner.timed == 1
    offered.clear()
    tuner = Watched(clock, exchange, limit=500)
    again = await tuner.root("left")
    assert again is not None
    await tune(tuner, again)
    assert ["to left", "right"] not in offered


async def test_the_fastest_kernel_gets_all_steps_that_made_others_faster_at_once() -> None:
    gains = {"a": 1.0, "b": 0.5, "c": 0.25, "d": -1.0}

    def each(text: str, profile: Profile | None) -> list[Move]:
        return [Move(one, one, 0.1, partial(str, text + one)) for one in gains if one not in text]

    def hidden_after_a(text: str, profile: Profile | None) -> list[Move]:
        return [] if text.endswith("a") else each(text, profile)

    async def clock(text: str) -> TimedProgram:
        return TimedProgram(10.0 - sum(gains[one] for one in text), "".join(sorted(text)))

    for found, expected in ((each, ("a", "b", "c")), (hidden_after_a, ("b", "c", "a"))):
        tuner = Tuner(clock, found, limit=5)
        root = await tuner.root("")
        assert root is not None
        await tune(tuner, root)
        assert tuner.fastest(1)[0].steps == expected


async def test_the_fastest_sequence_is_freed_of_steps_that_gain_nothing() -> None:
    saves = {"a": 3.0, "b": 0.0, "c": 2.0, "d": -0.001}

    def each(text: str, profile: Profile | None) -> list[Move]:
        return [Move(one, one, 0.1, partial(str, text + one)) for one in saves if one not in text]

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(10.0 - sum(saves[one] for one in text), text)

    asked: list[str] = []
    tuner = Tuner(clock, each, limit=1)
    root = await tuner.root("")
    assert root is not None
    joined = await tuner.join(root, ("a", "b", "c", "d"))
    assert joined is not None and joined.latency_us == 5.001 and tuner.left == 0
    await tuner.free(root)
    best = tuner.fastest(1)[0]
    assert (best.steps, best.rules, best.latency_us) == (("a", "c"), ("a", "c"), 5.0)
    assert asked == ["", "abcd", "abc", "ab", "ac", "c"] and tuner.timed == 5, "one kernel for each step"
    assert [one.steps for one in without_idle_steps(tuner.fastest())] == [("a", "c"), ()]


async def test_a_step_is_kept_if_the_kernel_is_slower_without_it_by_more_than_a_thousandth() -> None:
    def each(text: str, profile: Profile | None) -> list[Move]:
        return [Move(one, one, 0.1, partial(str, text + one)) for one in "ab" if one not in text]

    async def clock(text: str) -> TimedProgram:
        return TimedProgram({"": 10.0, "a": 9.0, "b": 5.006, "ab": 5.0}[text], text)

    tuner = Tuner(clock, each, limit=1)
    root = await tuner.root("")
    assert root is not None and await tuner.join(root, ("a", "b")) is not None
    await tuner.free(root)
    assert tuner.fastest(1)[0].steps == ("a", "b")
    await tuner.free(root)
    assert tuner.timed == 3, "kernels that were timed before are not timed again"


async def test_a_kernel_that_no_step_makes_faster_is_not_freed() -> None:
    async def clock(text: str) -> TimedProgram:
        return TimedProgram(10.0 + len(text), text)

    tuner = Tuner(clock, letters, limit=3)
    root = await tuner.root("")
    assert root is not None
    await tune(tuner, root)
    timed = tuner.timed
    await tuner.free(root)
    assert tuner.fastest(1) == [root] and tuner.timed == timed


async def test_a_move_that_a_later_step_hides_is_made_before_that_step() -> None:
    def places(text: str, profile: Profile | None) -> list[Move]:
        weak = [Move(f"w{n}", "w", 0.05, partial(str, f"{text} w{n}")) for n in range(20) if f"w{n}" not in text]
        if "ahead" in text:
            return weak
        names = [one for one in ("split", "ahead") if one not in text]
        return [Move(f"{one}, line 3", one, 0.3, partial(str, f"{text} {one}")) for one in names]

    async def clock(text: str) -> TimedProgram:
        split, ahead = "split" in text, "ahead" in text
        return TimedProgram((5.0 if split and ahead else 7.0 if ahead else 12.0 if split else 10.0), text)

    tuner = Tuner(clock, places, limit=6)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert tuner.fastest(1)[0].steps == ("split, line 3", "ahead, line 3")
    (split,) = (one for one in tuner.seen.values() if one.steps == ("split, line 3",))
    assert all(move.on is None for move in await tuner.moves(split)), "split hides nothing but itself"


def test_a_rewrite_is_made_again_on_the_same_kernel_without_another_reading() -> None:
    read = list[str]()

    def find(text: str, step: str) -> list[Move]:
        read.append(text)
        return [move for move in letters(text, None) if move.step == step]

    first = repeated("", ("a", "b"), find)
    assert repeated("", ("a", "b"), find)[0] == first[0]
    assert len(read) == 2


async def test_a_tie_is_kept_and_extended_in_place_of_the_kernel_before_it() -> None:
    asked: list[str] = []

    def places(text: str, profile: Profile | None) -> list[Move]:
        names = ("tie", *(f"m{n}" for n in range(4))) if "tie" not in text else tuple(f"m{n}" for n in range(4))
        return [Move(one, one[0], 0.1, partial(str, f"{text} {one}")) for one in names if one not in text]

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(10.0 if text in ("root", "root tie") else 11.0, text)

    tuner = Tuner(clock, places, limit=6)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert asked[:3] == ["root", "root tie", "root m0"] and "root tie m1" in asked
    assert not {"root m1", "root m2", "root m3"} & set(asked), "the tie is extended first"
    assert tuner.fastest(1) == [root], "of equally fast kernels the one with fewer steps is the best"


async def simulated(kernel: Kernel) -> TimedProgram | None:
    program = trace(kernel.text, [TensorSpec((128, 1024), "float32")], api="nki_legacy", chip="trn1")
    latency = timeline(program).latency_us
    return None if latency is None else TimedProgram(latency, program_hash(program))


def tuned(limit: int = 20, time: Callable[[Kernel], Awaitable[TimedProgram | None]] = simulated) -> TunedRules:
    return TunedRules(time, limit=limit)


def request(index: int, earlier: Sequence[Plan] = ()) -> PlanRequest:
    problem = Problem("any", "", "", (ProblemArgument("x", (128, 1024), "float32"),), "trn1", "nki_legacy")
    parent = Candidate(1, 0, Kernel(SILU, "nki_legacy"), None, id=7)
    return PlanRequest(problem, 1, 1, parent, 0, index, 0, earlier=tuple(earlier))


async def test_plans_are_the_fastest_sequences_and_their_attempts_repeat_the_steps() -> None:
    proposer, asked = tuned(), request(0)
    plan = await proposer.plan(asked)
    assert plan is not None and "composite_activation" in plan.rule.split("+") and plan.data["steps"]
    attempt = await tuned().attempt(AttemptRequest(asked.problem, plan, asked.parent, 0, 0))
    assert attempt is not None and attempt.text is not None and "nl.silu" in attempt.text
    before, after = await simulated(asked.parent.kernel), await simulated(Kernel(attempt.text, "nki_legacy"))
    assert before is not None and after is not None and after.latency_us < before.latency_us
    assert f"{after.latency_us:.4g} µs" in plan.text
    again = await proposer.plan(request(0, earlier=[plan]))
    assert again is None or again.data["steps"] != plan.data["steps"]
    assert await proposer.plan(request(500)) is None
    assert await proposer.attempt(AttemptRequest(asked.problem, plan, asked.parent, 1, 0)) is None


async def test_behind_the_sequences_come_the_places_at_which_a_rule_refuses() -> None:
    class Empty(TunedRules):
        async def tuned(self, parent: Candidate, problem: Problem) -> list[Tuned]:
            return []

    parent = Candidate(1, 0, Kernel(CHUNKS, "nki_legacy"), None, id=7)
    proposer, asked = Empty(simulated, limit=1), replace(request(0), parent=parent)
    _, refused = await proposer.findings(parent, asked.problem)
    numbered = [replace(asked, index=index) for index in range(len(refused) + 1)]
    plans = [plan for one in numbered if (plan := await proposer.plan(one)) is not None]
    assert [(plan.rule, plan.line) for plan in plans] == [(one.rule, one.line) for one in refused] != []
    attempt = await proposer.attempt(AttemptRequest(asked.problem, plans[0], asked.parent, 0, 0))
    assert attempt is not None and attempt.text is None and attempt.reason
    assert await proposer.plan(replace(asked, earlier=tuple(plans))) is None
    assert await Empty(simulated, limit=1, most=1).plan(asked) is None, "a slot beside models is no refusal's"


async def test_sequences_with_all_that_the_wrong_ones_share_come_last() -> None:
    class Prepared(TunedRules):
        async def tuned(self, parent: Candidate, problem: Problem) -> list[Tuned]:
            return [
                Tuned("", tuple(steps), ("hoist_loads",) * len(steps), TimedProgram(us, steps))
                for us, steps in enumerate(("ab", "ac", "ad", "e", "af"))
            ]

    proposer = Prepared(simulated, limit=1)
    wrong = [plan for index in (0, 1) if (plan := await proposer.plan(request(index))) is not None]
    assert {plan.title for plan in wrong} == {"2 rewrites: hoist loads x2"}
    wrong = [replace(plan, id=index) for index, plan in enumerate(wrong)]
    asked = [replace(request(index, earlier=wrong), wrong=frozenset({0, 1})) for index in range(4)]
    found = ["".join(plan.data["steps"]) for one in asked if (plan := await proposer.plan(one)) is not None]
    assert found == ["e", "ad", "af"], "both wrong kernels have the step a; the fastest come first, as before"


async def test_a_sequence_with_all_steps_of_a_wrong_one_comes_last_wherever_these_steps_are() -> None:
    listed = (["split, line 3"], ["turn, line 5", "one, line 8"], ["turn, line 5", "split, line 8"], ["drain, line 9"])

    class Prepared(TunedRules):
        async def tuned(self, parent: Candidate, problem: Problem) -> list[Tuned]:
            return [
                Tuned("", tuple(steps), ("hoist_loads",) * len(steps), TimedProgram(us, str(us)))
                for us, steps in enumerate(listed)
            ]

    proposer = Prepared(simulated, limit=1)
    wrong = [plan for index in (0, 1) if (plan := await proposer.plan(request(index))) is not None]
    wrong = [replace(plan, id=index) for index, plan in enumerate(wrong)]
    asked = [replace(request(index, earlier=wrong), wrong=frozenset({0, 1})) for index in range(2)]
    found = [plan.data["steps"] for one in asked if (plan := await proposer.plan(one)) is not None]
    assert found == [listed[3], listed[2]], "the wrong sequences share no step, but one of them is a part of the other"


async def test_a_sequence_too_slow_for_the_beam_is_no_plan() -> None:
    proposer = tuned()
    plans = [plan for index in range(20) if (plan := await proposer.plan(request(index))) is not None]
    latencies = []
    for plan in plans:
        attempt = await proposer.attempt(AttemptRequest(request(0).problem, plan, request(0).parent, 0, 0))
        assert attempt is not None and attempt.text is not None
        timed = await simulated(Kernel(attempt.text, "nki_legacy"))
        assert timed is not None
        latencies.append(timed.latency_us)
    limit_us = latencies[len(latencies) // 2]
    expected = [plan.data["steps"] for plan, us in zip(plans, latencies, strict=True) if us < limit_us]
    made = [await proposer.plan(replace(request(index), below_us=limit_us)) for index in range(20)]
    assert [plan.data["steps"] for plan in made if plan is not None] == expected != []


async def test_beside_models_a_parent_has_one_sequence() -> None:
    proposer = TunedRules(simulated, limit=20, most=1)
    plan = await proposer.plan(request(0))
    assert plan is not None and await proposer.plan(request(1)) is None
    assert await proposer.plan(request(0, earlier=[plan])) is None
    single = replace(plan, data={"key": ""})
    assert await proposer.plan(request(0, earlier=[single])) is not None, "a single rewrite is no sequence"


def crossing(*rewrites: str, below_us: float | None = None) -> PlanRequest:
    """Return a request for a crossover of a kernel, whose code begins three lines later, with one made by these rewrites."""
    asked = request(1)
    parent = replace(asked.parent, kernel=Kernel(f"# one\n# two\n# three\n{SILU}", "nki_legacy"))
    partner = Partner(replace(asked.parent, id=8), (AppliedPlan("", "", 1.5, rewrites),))
    return replace(asked, parent=parent, partner=partner, below_us=below_us)


COMPOSITE = next(move.step for move in moves(SILU, Launch("nki_legacy")) if move.rule == "composite_activation")


@pytest.mark.parametrize("proposer", [RulesProposer(), tuned()], ids=["single", "tuned"])
async def test_a_crossover_repeats_the_rewrites_of_the_partner_that_apply(proposer: RulesProposer) -> None:
    asked = crossing("transpose_once x, line 3", COMPOSITE)
    plan = await proposer.plan(asked)
    assert plan is not None and plan.partner == 8 and plan.rule == "composite_activation"
    line = int(COMPOSITE.rpartition("line ")[2].split()[0])
    assert plan.data["steps"] == [COMPOSITE.replace(f"line {line}", f"line {line + 3}")]
    attempt = await proposer.attempt(AttemptRequest(asked.problem, plan, asked.parent, 0, 0))
    assert attempt is not None and attempt.text is not None and "nl.silu" in attempt.text
    again = await proposer.crossed(replace(asked, earlier=(plan,)))
    assert again is None, "the same crossover is no new plan"


async def test_rules_make_no_crossover_of_a_model_s_step_nor_one_too_slow_for_the_beam() -> None:
    assert await tuned().crossed(crossing()) is None
    assert await tuned().crossed(crossing("transpose_once x, line 3")) is None
    assert await tuned().crossed(crossing(COMPOSITE, below_us=0.001)) is None
    plan = await tuned().plan(crossing(COMPOSITE, below_us=1e9))
    assert plan is not None and plan.partner == 8


async def test_a_run_with_little_time_is_given_what_was_tuned_in_half_of_it() -> None:
    passed_s, asked = 0.0, request(0)

    async def slow(kernel: Kernel) -> TimedProgram | None:
        nonlocal passed_s
        passed_s += 1.0
        return await simulated(kernel)

    proposer = TunedRules(slow, limit=1000, within_s=10.0, now=lambda: passed_s)
    assert await proposer.plan(asked) is not None
    assert 5.0 <= passed_s < 10.0


async def test_a_run_that_is_over_ends_its_tuning() -> None:
    asked = request(0)
    timed: list[str] = []

    async def counted(kernel: Kernel) -> TimedProgram | None:
        timed.append(kernel.text)
        return await simulated(kernel)

    proposer = TunedRules(counted, limit=1000)
    BothProposer(RulesProposer(), proposer).end_when(lambda: len(timed) >= 4)
    assert await proposer.tuned(asked.parent, asked.problem) == []
    assert len(timed) == 4


async def test_a_tuner_tells_how_far_it_is_at_the_begin_now_and_then_and_at_the_end() -> None:
    passed_s, told = 0.0, list[Tuning]()

    async def slow(kernel: Kernel) -> TimedProgram | None:
        nonlocal passed_s
        passed_s += 1.0
        return await simulated(kernel)

    async def tell(data: Tuning) -> None:
        told.append(data)

    proposer = TunedRules(slow, limit=6, tell=tell, now=lambda: passed_s)
    assert await proposer.plan(request(0)) is not None
    begin, *between, end = told
    assert begin == Tuning(candidate=7, timed=0, limit=6, elapsed_s=0.0)
    assert end.ended and end.limit >= end.timed >= 6 and end.elapsed_s == passed_s
    assert [one.timed for one in between] == [1, 3, 5] and not any(one.ended for one in between)
    assert await proposer.plan(request(1)) is not None
    assert told[-1] == end, "the second plan for a kernel times nothing"


async def test_a_step_that_does_not_apply_any_more_gives_no_code_and_the_reason() -> None:
    asked = request(0)
    plan = Plan(1, 1, 7, 0, "", data={"steps": ["widen_tiles 4096 columns, line 99"]})
    attempt = await tuned().attempt(AttemptRequest(asked.problem, plan, asked.parent, 0, 0))
    assert attempt is not None and attempt.text is None and "line 99 does not apply" in (attempt.reason or "")


TWO_COLUMN_LOOPS = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(8):
        part = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=x[0:128, nl.ds(c * 256, 256)])
        nisa.activation(dst=kept[0:128, nl.ds(c * 256, 256)], op=nl.exp, data=part)
    top = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=kept, axis=1)
    for d in nl.affine_range(8):
        done = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=done, data=kept[0:128, nl.ds(d * 256, 256)], op0=nl.multiply, operand0=top)
        nisa.dma_copy(dst=out[0:128, nl.ds(d * 256, 256)], src=done)
    return out
"""


def test_one_move_widens_the_tiles_of_all_loops() -> None:
    found = moves(TWO_COLUMN_LOOPS, Launch("nki", ((128, 2048),)))
    (move,) = [one for one in found if one.step == "widen_tiles everywhere"]
    made = move.apply()
    assert made is not None and "affine_range(8)" not in made and "256)]" not in made


def test_a_source_that_can_not_be_read_has_no_moves() -> None:
    assert moves("def kernel(:", Launch("nki_legacy")) == []


def test_fewer_steps_come_first_where_latencies_tie() -> None:
    tuner = Tuner(Clock(), letters, limit=1)
    for steps in (("a", "b"), ("c",)):
        tuner.seen["".join(steps)] = Tuned("", steps, steps, TimedProgram(1.0, "".join(steps)))
    assert [one.steps for one in tuner.fastest()] == [("c",), ("a", "b")]


def test_a_kernel_that_some_of_its_steps_make_as_fast_is_no_plan() -> None:
    timed = {
        ("keep, line 3",): 60.0,
        ("move, line 5", "keep, line 4"): 59.9,
        ("keep, line 3", "split, line 9"): 59.0,
        ("keep, line 3", "split, line 9", "move, line 2"): 58.8,
        ("move, line 5", "split, line 9"): 59.5,
        ("keep, line 3", "keep, line 8"): 60.0,
    }
    found = [Tuned("", steps, steps, TimedProgram(us, "".join(steps))) for steps, us in timed.items()]
    found.sort(key=lambda one: one.latency_us)
    assert [(one.steps, one.latency_us) for one in without_idle_steps(found)] == [
        (("keep, line 3", "split, line 9"), 59.0),
        (("move, line 5", "split, line 9"), 59.5),
        (("keep, line 3",), 60.0),
    ]


async def test_a_rule_whose_moves_saved_nothing_promises_less() -> None:
    def many(text: str, profile: Profile | None) -> list[Move]:
        strong = [Move(f"a{number}", "a", 0.3, partial(str, f"{text} a{number}")) for number in range(9)]
        weak = [Move(f"b{number}", "b", 0.2, partial(str, f"{text} b{number}")) for number in range(9)]
        return [*strong, *weak] if text == "root" else []

    asked: list[str] = []

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(7.0 if "b" in text else 10.0, text)

    tuner = Tuner(clock, many, limit=12)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert asked[1:3] == ["root a0", "root b0"] and asked[3] == "root b1"


def profile(**busy_us: float) -> Profile:
    return Profile(Source.SIMULATED, "trn1", "nki_legacy", 100.0, "compiler_legacy", engines_us=busy_us)


async def test_a_step_that_saved_nothing_on_one_kernel_waits_on_the_next_for_another_place_of_its_rule() -> None:
    def places(text: str, profile: Profile | None) -> list[Move]:
        listed = (("a", "a", 0.3), ("r0", "r", 0.2), ("r1", "r", 0.15))
        return [Move(*one, partial(str, f"{text} {one[0]}")) for one in listed if one[0] not in text]

    asked: list[str] = []

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram((7.0 if "a" in text else 10.0) + 0.05 * ("r0" in text), text)

    tuner = Tuner(clock, places, limit=3)
    root = await tuner.root("k")
    assert root is not None
    await tune(tuner, root)
    assert asked[1:] == ["k a", "k r0", "k a r1"]


async def test_a_rule_whose_move_lost_time_waits_for_one_whose_move_saved_nothing() -> None:
    def places(text: str, profile: Profile | None) -> list[Move]:
        listed = [
            Move(f"{rule}{number}", rule, benefit, partial(str, f"{text} {rule}{number}"))
            for rule, benefit in (("slow", 0.12), ("idle", 0.1))
            for number in range(2)
        ]
        return listed if text == "root" else []

    asked: list[str] = []

    async def clock(text: str) -> TimedProgram:
        asked.append(text)
        return TimedProgram(16.0 if "slow" in text else 10.0, text)

    tuner = Tuner(clock, places, limit=4)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert asked[1:] == ["root slow0", "root idle0", "root idle1", "root slow1"]


def test_a_move_promises_less_where_the_engines_that_it_relieves_are_idle() -> None:
    def promised(found: Profile | None) -> dict[str, float]:
        return {move.step: move.benefit for move in moves(SILU, Launch("nki_legacy", ((128, 1024),)), found)}

    known, (busy, idle) = promised(None), (promised(profile(scalar=80.0)), promised(profile(scalar=10.0, dma=90.0)))
    assert set(busy) == set(idle) <= set(known)
    (activation,) = [step for step in known if step.startswith("composite_activation")]
    assert busy[activation] == 0.8 * known[activation] and idle[activation] == 0.1 * known[activation]
    assert promised(profile())[activation] == known[activation], "a device may report no engine"


def waiting(line: int, for_line: int, busy_line: int) -> Profile:
    """Return a profile whose tensor engine works in one line, and waits in another for a third."""
    return replace(
        profile(tensor=60.0, vector=30.0),
        chip="trn2",
        details={
            "binding": {"engine": "tensor", "start": [], "waits": [{"line": line, "for_line": for_line, "us": 25.0}]},
            "hot_spots": [{"line": busy_line, "engine": "tensor", "busy_us": 40.0}],
            "critical_path": [
                {"line": busy_line, "engine": "tensor", "us": 75.0},
                {"line": line_of(DRAIN_FED, "nisa.tensor_scalar"), "engine": "vector", "us": 25.0},
            ],
        },
    )


def test_the_cut_that_fills_the_wait_of_the_busiest_engine_promises_most() -> None:
    load, aggregate, turn, product = (
        line_of(STAGES_NORMED, text)
        for text in ("dst=tile, src=x", "nisa.bn_aggr", "nisa.nc_transpose", "nisa.nc_matmul")
    )

    def promised(found: Profile) -> dict[str, float]:
        listed = moves(STAGES_NORMED, Launch("nki", tuple(STAGES_NORMED_SHAPES)), found)
        return {move.step: move.benefit for move in listed if move.rule == "pipeline_stages"}

    for_load, for_chain = promised(waiting(turn, load, product)), promised(waiting(turn, aggregate, product))
    first = min(for_load)
    assert for_load[first] == 0.25 and min(for_load.values()) == 0.02, "only cuts between load and transpose help"
    assert for_chain[first] == 0.02, "nothing of the tensor engine stands before the chain"


def test_parts_made_before_a_transpose_promise_a_third_of_the_time_of_transposes_and_parts() -> None:
    lines = {text: line_of(TURNED_PARTS, text) for text in ("nisa.nc_transpose", "dst=high, src", "dst=low")}
    engines = dict(zip(lines, ("tensor", "scalar", "vector"), strict=True))
    spots = [{"line": lines[text], "engine": engine, "busy_us": 30.0} for text, engine in engines.items()]
    found = replace(profile(tensor=50.0, vector=100.0), details={"hot_spots": spots})
    (move,) = [one for one in moves(TURNED_PARTS, Launch("nki", ((2, 128, 512),)), found) if one.rule == "turn_parts"]
    assert move.benefit == pytest.approx(0.2)


def test_a_line_of_the_critical_path_promises_its_share_when_it_moves_to_another_engine() -> None:
    found = waiting(1, 2, 3)
    listed = {move.step: move.benefit for move in moves(DRAIN_FED, Launch("nki", tuple(DRAIN_FED_SHAPES)), found)}
    line = line_of(DRAIN_FED, "nisa.tensor_scalar")
    assert listed[f"place_engine scalar, line {line} (alone)"] == 0.25
    beside = replace(
        found, engines_us={"vector": 90.0}, details={"critical_path": [{**found.details["critical_path"][0]}]}
    )
    off = {move.step: move.benefit for move in moves(DRAIN_FED, Launch("nki", tuple(DRAIN_FED_SHAPES)), beside)}
    assert off[f"place_engine scalar, line {line} (alone)"] == 0.01, "the vector engine is busy, but not on the path"


def test_a_line_for_which_the_busiest_engine_waits_promises_that_wait_when_it_moves_to_another_engine() -> None:
    line = line_of(DRAIN_FED, "nisa.tensor_scalar")
    found = waiting(1, line, 3)
    wait = {**found.details["binding"]["waits"][0], "us": 40.0}

    def promised(engine: str) -> float:
        binding = {**found.details["binding"], "waits": [{**wait, "for_engine": engine}]}
        details = {**found.details, "binding": binding}
        listed = moves(DRAIN_FED, Launch("nki", tuple(DRAIN_FED_SHAPES)), replace(found, details=details))
        return next(move.benefit for move in listed if move.step == f"place_engine scalar, line {line} (alone)")

    assert promised("vector") == 0.4 and promised("scalar") == 0.25, "without the wait, the share of the path"


def test_loads_that_end_before_the_busiest_engine_starts_promise_their_time() -> None:
    load = line_of(LOADED_FIRST, "dst=loaded, src=w")
    start = [{"line": load, "engine": "dma", "us": 30.0}, {"line": load + 1, "engine": "vector", "us": 5.0}]
    found = replace(profile(tensor=60.0), details={"binding": {"engine": "tensor", "waits": [], "start": start}})
    known = moves(LOADED_FIRST, Launch("nki", tuple(LOADED_FIRST_SHAPES)))
    listed = moves(LOADED_FIRST, Launch("nki", tuple(LOADED_FIRST_SHAPES)), found)
    assert [(move.step, move.benefit) for move in listed if move.rule == "order_loads"] == [
        (f"order_loads {variant}, line {load - 2}", 0.3) for variant in ("in parts of 512 columns", "later")
    ]
    assert {move.benefit for move in known if move.rule == "order_loads"} == {0.01}


async def test_a_kernel_is_extended_with_what_its_own_profile_promises() -> None:
    seen: list[Profile | None] = []

    def watched(text: str, found: Profile | None) -> list[Move]:
        seen.append(found)
        return []

    async def clock(text: str) -> TimedProgram:
        return TimedProgram(1.0, text, profile(vector=50.0))

    tuner = Tuner(clock, watched, limit=8)
    root = await tuner.root("root")
    assert root is not None
    await tune(tuner, root)
    assert seen == [profile(vector=50.0)]
