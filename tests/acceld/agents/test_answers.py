"""The size of the agents' answers and of the list of tools, and workloads made from an agent's reference."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acceld.agents.authoring import made
from acceld.agents.places import opened
from acceld.agents.toolbox import ANSWER_CHARS, Toolbox, fitted
from acceld.config import Config
from acceld.errors import UsageError
from acceld.home import Home
from acceld.workloads import load_workload

MOST_LIST_CHARS = 18_102
"""Characters of the list of tools before there was create_workload."""
REFERENCE = "import numpy as np\n\n\ndef forward(x, eps):\n    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + eps)\n"


def test_the_list_of_tools_has_not_grown(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    from acceld.agents.server import build

    async def listed() -> list[Any]:
        return await build(Toolbox(Home(tmp_path), opened([str(tmp_path)], Config()))).list_tools()

    tools = asyncio.run(listed())
    size = sum(len(json.dumps(tool.model_dump(by_alias=True, exclude_none=True))) for tool in tools)
    assert size <= MOST_LIST_CHARS
    assert not any(tool.output_schema for tool in tools)


@pytest.mark.parametrize(
    "answer",
    [
        {"long": "x" * 9000},
        {"lines": ["y" * 100] * 400, "small": 1},
        {"nested": {"first": {"waits": ["w" * 200] * 90}, "second": {"text": "\u00e9" * 5000}}},
        {"a": "x" * 3000, "b": "y" * 3000, "c": ["z" * 2000, "z" * 2000]},
    ],
)
def test_an_answer_is_cut_to_its_limit_and_stays_json(answer: dict[str, Any]) -> None:
    keys = set(answer)
    text = fitted(answer)
    assert len(text) <= ANSWER_CHARS
    assert set(json.loads(text)) == keys


def test_all_that_is_wrong_with_a_workload_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    places = opened([str(tmp_path)], Config())
    with pytest.raises(UsageError) as refused:
        made(
            places,
            "there",
            "import os\n\n\ndef backward(x):\n    return x\n",
            ["x=128x512", "eps=small", "8x8:float33"],
            "exact",
        )
    said = refused.value.message
    assert said.startswith("7 things are wrong, nothing was written:\n1. folder: ")
    for part in (
        "reference: line 1: ",
        "no function forward",
        "arguments[0]",
        "arguments[1]",
        "arguments[2]",
        "float32",
        "precision: 'exact'",
    ):
        assert part in said
    with pytest.raises(UsageError, match="forward has the parameter eps, which no argument describes"):
        made(places, "new", REFERENCE, ["x=128x64:float32"], "")
    with pytest.raises(UsageError, match="forward has no parameter 'y'; its parameters are x, eps"):
        made(places, "new", REFERENCE, ["y=128x64:float32", "eps=1e-6"], "")
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


def test_a_workload_is_made_from_a_formula_with_work_and_a_first_kernel(tmp_path: Path) -> None:
    places = opened([str(tmp_path)], Config())
    told = made(places, "norm", REFERENCE, ["128x64:float32", "eps=1e-6"], "split_ok")
    found = load_workload(tmp_path / "norm")
    assert told.folder == tmp_path / "norm" and told.told == {}
    assert [one.name for one in found.arguments] == ["x", "eps"] and found.precision == "split_ok"
    assert found.work is not None and found.work.hbm_bytes == 2 * 4 * 128 * 64
    assert set(found.baselines) == {"nki", "nki_legacy"}
    assert places.own_workloads() == ["norm"]
    with pytest.raises(UsageError, match="there is a folder or file"):
        made(places, "norm", REFERENCE, ["x=128x64:float32", "eps=1e-6"], "")


def test_a_reference_that_can_not_be_lowered_still_declares_its_bytes(tmp_path: Path) -> None:
    text = "import numpy as np\n\n\ndef forward(x):\n    return np.partition(x, 3, axis=1)\n"
    told = made(opened([str(tmp_path)], Config()), "sorted", text, ["x=128x64:float32"], "")
    found = load_workload(tmp_path / "sorted")
    assert set(told.told["no_kernel_for"]) == {"nki", "nki_legacy"} and "only the bytes" in told.told["work_note"]
    assert found.work is not None and (found.work.hbm_bytes, found.work.matmul_flops) == (65536, 0)
