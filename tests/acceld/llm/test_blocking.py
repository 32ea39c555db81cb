"""The first call imports an SDK and a price table without blocking the event loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

CHILD = """
import asyncio
import os
from blockbuster import BlockBuster

from acceld.llm.calls import Calls
from acceld.llm.ledger import MemoryLedger
from acceld.search.budget import Budget
from tests.acceld.llm.models import ask, model_for
from tests.acceld.llm.server import ScriptedServer


async def main():
    async with ScriptedServer() as server:
        model = model_for(server, {api!r}, price_provider={provider!r})
        ledger = MemoryLedger()
        calls = Calls({{"m": (model.settings, model)}}, ledger=ledger, purse=Budget())
        guard = BlockBuster(scanned_modules=["acceld"])
        guard.activate()
        answer = await calls.complete(ask())
        guard.deactivate()
        await calls.close()
    print(answer.text, flush=True)
    os._exit(0)  # built-ins that BlockBuster patched do not always survive the interpreter's end


asyncio.run(main())
"""


@pytest.mark.parametrize(("api", "provider"), [("responses", "openai"), ("messages", "anthropic")])
def test_the_first_call_does_not_block_the_loop(api: str, provider: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(api=api, provider=provider)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == "hello\n"


def test_importing_the_models_layer_imports_no_sdk() -> None:
    code = (
        "import sys, acceld.llm.model, acceld.llm.calls, acceld.proposers.llm.proposer\n"
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'pydantic', 'genai_prices') if name in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.stdout == "[]\n", child.stderr
