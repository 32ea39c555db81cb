"""A cap on the device's time ends a run as a time limit does, at the price of the machine."""

from __future__ import annotations

import pytest

from acceld.model import Kernel, RunState
from acceld.proposers.interface import Problem
from acceld.search.loop import Search, SearchParts
from acceld.store.database import Store
from acceld.store.reads.records import load_run
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, kernel_text, new_run

TOY = Problem("toy", "", "def forward(x): ...", (), "trn1", "nki_legacy")


@pytest.mark.parametrize(("cap_usd", "price_usd", "ends"), [(0.0, 3600.0, True), (1e6, 1.0, False), (0.0, None, False)])
async def test_the_cap_on_the_devices_time_ends_a_run(
    cap_usd: float, price_usd: float | None, ends: bool, store: Store
) -> None:
    run = await new_run(store, iterations=1, plans=1, attempts=1)
    root = Kernel(kernel_text(100.0), "nki_legacy", "kernel")
    parts = SearchParts(
        store,
        ScriptedEvaluator(),
        ListedProposer([0.9]),
        TOY,
        root,
        device_usd_per_hour=price_usd,
        device_cap_usd=cap_usd,
    )
    assert await Search(await store.read(load_run, run.id), parts).run() is RunState.FINISHED
    message = (await store.read(load_run, run.id)).message
    assert ("the cap of 0.00 USD on the device's time is used up" in message) is ends
