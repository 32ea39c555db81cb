"""The parts of a report that are checked by themselves: the command, the figures."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from typing import Any, get_args

import pytest
from msgspec import convert

from acceld.cli.commands.optimize import add_arguments
from acceld.config import RoleConfig, SearchConfig
from acceld.model import PRESETS, SEARCH_OPTIONS, KnowledgeLevel, MemoryPolicy, StrategyName
from acceld.report import svg
from acceld.report.facts import RunFacts
from acceld.report.page import _progress, command, steered

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
    assert command(RUN, {}) == (plain, "", {})
    search = {**RUN["search"], "beam_width": 6, "patience": 0, "planner": False, "candidates": 40, "top_k": 5}
    search |= {"show_simulated": True, "tools": True}
    words, settings, further = command({**RUN, "search": search, "name": "my run"}, {})
    assert words == f"{plain} --beam 6 --patience 0 --no-planner --candidates 40 --name 'my run'"
    assert settings == "[search]\nshow_simulated = true\n[llm.executor]\ntools = true"
    assert further == {"top_k": 5}


@pytest.mark.parametrize("name", [name for name in SEARCH_OPTIONS if name != "seed"])
def test_every_option_is_a_flag_a_line_of_acceld_toml_or_one_that_neither_has(
    name: str,
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    kinds = {"strategy": StrategyName, "memory": MemoryPolicy, "knowledge": KnowledgeLevel}
    preset = getattr(PRESETS["quick"], name)
    others = {"tools": (True,), **{one: get_args(kind) for one, kind in kinds.items()}}
    value = next(one for one in others.get(name, (not preset,) if isinstance(preset, bool) else (7,)) if one != preset)
    words, settings, further = command({**RUN, "search": {name: value}}, {})
    if settings:
        (table,) = tomllib.loads(settings).values()
        known = convert(table.get("executor", table), RoleConfig if "executor" in table else SearchConfig)
        assert getattr(known, name) == value
    elif not further:
        parsed = vars(parser.parse_args(shlex.split(words)[2:]))[name]
        wanted = {"screen": "simulator" if value else "off", "from_reference": ""}.get(name, value)
        assert parsed == (str(wanted) if name == "host" else wanted)


def test_a_run_that_began_with_a_file_names_it() -> None:
    words, _, _ = command({**RUN, "root_sha256": "ab", "backend": "neuron"}, {"filename": "mine.py"})
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


def test_the_gain_by_dollars_stands_beside_the_gain_by_iterations_where_models_were_paid() -> None:
    beams = [{"iteration": 1, "speedup": 1.5}, {"iteration": 2, "speedup": 2.0}]

    def figures(usd: float | None) -> str:
        costs = {"by_iteration": [{"iteration": number, "cost_usd": usd} for number in (1, 2)]}
        run = {"beams": beams, "iteration": 2}
        return "".join(_progress(RunFacts(run, {"baseline_latency_us": 10.0}, (), costs, (), (), None, None)))

    assert "USD spent" in figures(0.25) and "The same by money spent." in figures(0.25)
    assert "speed-up" in figures(None) and "USD spent" not in figures(None)
