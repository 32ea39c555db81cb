"""Drawings as plain functions: trees, columns, bars, sentences, estimates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from rich.text import Text

from acceld.events import BestChanged, Event, EventData, LlmCallFinished
from acceld.figures import STATUS_WORDS
from acceld.model import Status
from acceld.tui.beam import Folding, tree_lines
from acceld.tui.estimate import at_most, estimate
from acceld.tui.palette import Palette
from acceld.tui.replay import Replay
from acceld.tui.state import RunView
from acceld.tui.widgets.bars import bar, fitted, sparkline
from acceld.tui.widgets.columns import GAP, Column, fit, line, whole
from acceld.tui.words import level_of, sentence
from tests.acceld.event_records import event_data
from tests.tui.scene import events_of


def view(iterations: int = 4) -> RunView:
    run = RunView(1)
    for event in events_of(1, iterations=iterations, plans=8, attempts=3):
        run.apply(event)
    return run


def test_the_tree_shows_the_way_to_the_best_and_folds_the_rest() -> None:
    run = view()
    assert run.best is not None
    lines = tree_lines(run, Folding())
    shown = {one.candidate for one in lines if not one.folded}
    assert set(run.path(run.best.candidate)) <= shown
    assert all(number in shown for number in run.beam)
    assert len(lines) < len(run.candidates)
    folded = sum(one.folded for one in lines)
    hidden = {
        number for one in lines if not one.folded and not one.open for number in run.children.get(one.candidate, [])
    }
    assert len(shown) + folded + len(hidden) >= len(run.candidates)
    assert len({one.key for one in lines}) == len(lines), "keys are distinct"


def test_unfolding_a_family_shows_all_of_it() -> None:
    run, folding = view(), Folding()
    rest = next(one for one in tree_lines(run, folding) if one.folded)
    folding.unfolded.add(rest.candidate)
    shown = {one.candidate for one in tree_lines(run, folding) if not one.folded}
    assert set(run.children[rest.candidate]) <= shown


def test_closing_a_candidate_hides_what_is_below_it() -> None:
    run = view()
    assert [one.candidate for one in tree_lines(run, Folding(closed={1}))] == [1]


def test_failed_ones_and_words_are_found() -> None:
    run = view()
    failed = tree_lines(run, Folding(only_failed=True))
    assert failed and all(run.candidates[one.candidate].latency_us is None for one in failed)
    timeouts = tree_lines(run, Folding(query="timeout"))
    assert all(run.candidates[one.candidate].status is Status.TIMEOUT for one in timeouts)


def test_a_tree_of_a_hundred_thousand_is_still_a_page() -> None:
    run = RunView(1)
    for number in range(1, 100_001):
        run.load_candidate(
            {
                "id": number,
                "parent": number // 40 or None,
                "evaluation": number,
                "status": "passed",
                "latency_us": 1e6 / number,
                "state": "done",
            },
            1,
        )
    assert len(tree_lines(run, Folding())) < 50


@given(st.integers(4, 200), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), min_size=1, max_size=9))
def test_a_table_line_never_exceeds_its_width(width: int, shapes: list[tuple[int, int]]) -> None:
    columns = [Column("c", size, keep) for size, keep in shapes]
    widths = fit(columns, width)
    assert widths
    if len(widths) > 1:
        assert sum(widths.values()) + GAP * (len(widths) - 1) <= width
    cells = [("x" * 30, Style())] * len(columns)
    assert line(columns, cells, width).cell_len == sum(widths.values()) + GAP * (len(widths) - 1)


def test_the_least_important_columns_go_first() -> None:
    columns = [Column("a", 10, keep=9), Column("b", 10, keep=1), Column("c", 10, keep=5, stretch=True)]
    assert set(fit(columns, 34)) == {0, 1, 2}
    assert fit(columns, 30) == {0: 10, 2: 18}
    assert set(fit(columns, 12)) == {0}


@given(st.floats(-10, 1e9), st.floats(0.0, 1e6), st.integers(0, 80))
def test_a_bar_has_exactly_its_width(part: float, whole: float, width: int) -> None:
    assert len(bar(part, whole, width)) == width


@given(st.lists(st.floats(0, 1e9), max_size=200), st.integers(0, 60))
def test_a_sparkline_fits_and_ends_with_the_last_value(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) <= width and len(drawn) == min(len(values), width)
    if width and len(set(values)) > 1 and values[-1] == max(values) and len(drawn) > 1 and len(set(drawn)) > 1:
        assert drawn[-1] == "█"


def test_texts_that_do_not_fit_say_so() -> None:
    assert fitted("abcdef", 4) == "abc…" and fitted("abc", 4) == "abc"


@given(event_data(st.text("words", min_size=1)))
def test_every_event_has_a_sentence_and_a_level(data: EventData) -> None:
    assert sentence(Event(data, 1, 1)).strip()
    assert level_of(Event(data, 1, 1))


def test_every_status_has_a_short_word() -> None:
    assert set(STATUS_WORDS) == set(Status) and all(len(word) <= 11 for word in STATUS_WORDS.values())


def test_an_estimate_rests_on_earlier_runs_and_says_when_there_is_none() -> None:
    row = {
        "proposer": "rules", "chip": "trn1", "candidates": 100, "started_at": 0.0, "ended_at": 50.0, "cost_usd": 0.0,
        "speedup": 1.5, "improved": True,
    }  # fmt: skip
    text = estimate([row, row | {"speedup": 1.2, "improved": False}], "quick", "rules", "trn1")
    assert f"at most {at_most('quick')} candidates, about {at_most('quick') // 2} s, no model cost" in text
    assert "2 earlier runs reached 1.20x tie to 1.50x" in text
    assert "no earlier run of this kind" in estimate([row], "quick", "llm", "trn1")


def test_a_replay_plays_to_its_end_and_stops() -> None:
    replay = Replay(1, list(events_of(1, iterations=1)))
    replay.playing = True
    assert not any(event for event in replay.console.log)
    for _ in range(400):
        replay.advance(0.1)
    assert replay.fraction == 1.0 and not replay.playing
    replay.step(-1)
    assert replay.position == len(replay.events) - 1


def test_at_80_columns_a_replay_tells_the_whole_of_a_new_best() -> None:
    best = Event(BestChanged(2051, 365.0, 2.23, source="simulated", improved=True), 1, 9, 1.0)
    replay = Replay(1, [best] * 1000)
    replay.position = 1000
    shown = replay.line(80, Palette(*(Style(),) * 12)).plain
    assert shown.endswith(" 1000/1000  new best c2051: ≈ 365 µs sim, 2.23x") and len(shown) <= 80 and "●" in shown


def test_a_call_that_was_answered_is_no_warning() -> None:
    call = LlmCallFinished(1, "planner", "gpt-oss-120b", "answered", 1_200, 0, 80, 0.01)
    answered, refused = Event(call, 1, 1), Event(replace(call, outcome="rate_limited"), 1, 2)
    assert level_of(answered) == "info" and sentence(answered).startswith("planner gpt-oss-120b: 1.2k in")
    assert level_of(refused) == "warning" and "rate_limited" in sentence(refused)


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [
        ("497 µs 1.63x", 12, "497 µs 1.63x"),
        ("497 µs 1.63x", 10, "497 µs …"),
        ("497 µs 1.63x more", 13, "497 µs 1.63x…"),
        ("a long title", 7, "a long…"),
        ("12345", 3, "…"),
    ],
)
def test_a_text_is_cut_to_its_room_and_never_inside_a_number(text: str, width: int, wanted: str) -> None:
    assert fitted(text, width) == wanted


def test_texts_beside_each_other_are_whole_or_left_out() -> None:
    parts = [(Text("r1 silu"), 9), (Text(" trn1"), 0), (Text("  best 1.24 ms"), 4), (Text("  c2 1.28x unconfirmed"), 2)]
    assert whole(parts, 60).plain == "r1 silu trn1  best 1.24 ms  c2 1.28x unconfirmed"
    assert whole(parts, 45).plain == "r1 silu  best 1.24 ms  c2 1.28x unconfirmed"
    assert whole(parts, 40).plain == "r1 silu  best 1.24 ms"
