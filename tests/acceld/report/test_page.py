"""The parts of a report that are checked by themselves: the command, the figures."""

from __future__ import annotations

import re
from typing import Any

from acceld.report import svg
from acceld.report.page import command, steered

RUN: dict[str, Any] = {
    "workload": "silu",
    "chip": "trn1",
    "api": "nki_legacy",
    "backend": "simulator",
    "preset": "quick",
    "proposer": "rules",
    "seed": 7,
    "name": "",
    "search": {"beam_width": 2, "plans": 4, "attempts": 2, "iterations": 4, "patience": 3, "seed": 7},
}


def test_the_command_of_a_report_has_every_option_that_differs_from_the_preset() -> None:
    plain = "acceld optimize silu --chip trn1 --api nki_legacy --preset quick --proposer rules --seed 7"
    assert command(RUN, {}) == (plain, "")
    search = {**RUN["search"], "beam_width": 6, "patience": 0, "planner": False, "candidates": 40, "top_k": 5}
    words, settings = command({**RUN, "search": search, "name": "my run"}, {})
    assert words == f"{plain} --beam 6 --patience 0 --no-planner --candidates 40 --name 'my run'"
    assert settings == "top_k = 5"


def test_a_run_that_began_with_a_file_names_it() -> None:
    words, _ = command({**RUN, "root_sha256": "ab", "backend": "neuron"}, {"filename": "mine.py"})
    assert words.startswith("acceld optimize mine.py --workload silu ") and "--backend neuron" in words


def test_a_figure_has_its_colors_and_its_legend_by_itself() -> None:
    drawn = svg.peak_bars([("silu", 20.0, 55.0)])
    used = set(re.findall(r'class="(\w+)"', drawn))
    assert all(re.search(rf"\.{name} {{[^}}]*#[0-9a-f]{{6}}", drawn) for name in used) and {"before", "after"} <= used
    assert "% of peak before" in drawn and "% of peak after" in drawn


def test_a_figure_by_itself_needs_no_variables_of_its_page() -> None:
    drawn = svg.standalone(svg.peak_bars([("silu", 20.0, 55.0)]), "#ffffff")
    assert "var(" not in drawn and "rect.after { fill: #2f6592; }" in drawn and 'fill="#ffffff"' in drawn


def test_what_people_steered_is_told_with_its_text_and_its_result() -> None:
    told = steered({"action": "hint", "by": "ada", "text": "keep w in SBUF", "result": "stored"})
    assert told == ("ada", "hint: text keep w in SBUF", "stored")
    assert steered({"action": "pause"}) == ("", "pause", "")


def test_iterations_have_whole_numbers_on_their_axis() -> None:
    assert svg.whole_ticks(0, 3) == [0, 1, 2, 3] and svg.whole_ticks(0, 16) == [0, 4, 8, 12, 16]
    drawn = svg.steps([(0.0, 1.0), (2.0, 1.5)], "iteration", "speed-up", 3.0, counted=True)
    assert re.findall(r'text-anchor="middle">([^<]+)<', drawn) == ["0", "1", "2", "3"]
