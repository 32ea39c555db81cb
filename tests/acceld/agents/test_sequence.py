"""A fixed sequence of requests, by an agent that knows only the tools: from a formula to an applied, strictly gated kernel."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acceld.agents.toolbox import ANSWER_CHARS
from tests.acceld.agents.layernorm_product import ARGUMENTS, FORMULA, OWN_KERNEL
from tests.acceld.agents.test_mcp import sdk_client

if TYPE_CHECKING:  # see test_mcp
    from mcp import Client

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the SDK of MCP")

MOST_REQUESTS = 60


class Agent:
    """An agent that calls tools and looks at their answers only."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.requests = 0

    async def ask(self, tool: str, /, **arguments: Any) -> tuple[dict[str, Any], str]:
        """Return an answer and its source text. It fails for an error, an answer that is too long, or one sent twice."""
        self.requests += 1
        found = await self._client.call_tool(tool, arguments)
        texts = [one.text for one in found.content if one.type == "text"]
        assert not found.is_error, texts
        assert found.structured_content is None
        assert len(texts[0]) <= ANSWER_CHARS, (tool, len(texts[0]))
        return json.loads(texts[0]), texts[1] if len(texts) > 1 else ""

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of an error."""
        self.requests += 1
        found = await self._client.call_tool(tool, arguments)
        assert found.is_error and found.content[0].type == "text", found.content
        return found.content[0].text


@pytest.mark.slow
async def test_an_agent_that_knows_only_the_tools_goes_from_the_formula_to_an_applied_kernel(project: Path) -> None:
    async with sdk_client() as client:
        agent = Agent(client)
        listed, _ = await agent.ask("list_workloads")
        assert "small_silu" in listed["own"]
        for topic in ("example", "buffers", "costs", "limits", "nl.sbuf", "nc_matmul", "dma_transpose"):
            await agent.ask("look_up", name=topic)
        place = {"folder": "made", "reference": FORMULA, "precision": "split_ok", "chip": "trn2", "api": "nki"}
        said = await agent.refused("create_workload", **place, arguments=["x=2048x1024", "w=1024:float33"])
        assert "2 things are wrong" in said and "float32" in said and not (project / "made").exists()
        made, _ = await agent.ask("create_workload", **place, arguments=list(ARGUMENTS))
        first = made["first_kernel"]
        assert first["latency_us"] < 300 and first["percent_of_floor"] > 50
        facts, _ = await agent.ask("show_workload", workload="made")
        assert facts["precision"].startswith("split_ok: ") and facts["floor_us"]["trn2"] == first["floor_us"]
        _, text = await agent.ask("show_workload", workload="made", show="kernel")
        file = "made/kernel.py"
        assert (project / file).read_text() == text
        checked, _ = await agent.ask("check_kernel", workload="made", path=file, chip="trn2")
        assert checked["status"] == "passed" and "tolerance_is" in checked
        profiled, _ = await agent.ask("profile_kernel", workload="made", path=file, chip="trn2")
        assert profiled["time"].startswith("tensor: busy") and profiled["peaks"] and profiled["hot_lines"]
        rewrites, _ = await agent.ask("suggest_rewrites", workload="made", path=file, chip="trn2")
        assert any(line.startswith("split_products") and " certain" in line for line in rewrites["suggestions"])
        compared, _ = await agent.ask(
            "compare_kernels", workload="made", first_source=OWN_KERNEL, second_path=file, chip="trn2"
        )
        assert compared["verdict"] == "certain" and compared["why"].startswith("the second takes +")
        applied, _ = await agent.ask("apply_best", path=file, source=OWN_KERNEL, workload="made")
        assert applied["gate"] == "strict" and applied["verdict"] == "certain"
        assert (project / file).read_text() == OWN_KERNEL
        # The model's constants leave no less than 187.4 us to three products of bfloat16 parts: 16 us of launch and end,
        # and 1.03 times the 768 products of 520 cycles at 2.4 GHz. The rest is the start, transposes and the last store.
        assert applied["latency_us"] <= 200.1
        assert agent.requests <= MOST_REQUESTS
