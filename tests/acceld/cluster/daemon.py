"""Run a daemon over a Ray cluster of simulated devices: ``python -m tests.acceld.cluster.daemon --home DIR``.

``FLEET_ADDRESS`` is the cluster's address. Rules make each kernel a tenth faster.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from acceld.cluster.fleet import Fleet
from acceld.cluster.remote import RayHosts, Setup
from acceld.config import Config, DevicesConfig, EvaluateConfig
from acceld.daemon.parts import Parts
from acceld.daemon.process import main
from acceld.daemon.runs import Searching
from acceld.evaluate.interface import EvaluationRequest
from acceld.home import Home
from acceld.model import Run
from acceld.search.control import RunControl
from acceld.search.loop import Search
from acceld.store.changes.tree import mark_started
from acceld.store.database import Store
from tests.acceld.cluster.nodes import MAKER
from tests.acceld.cluster.runs import search_parts


async def fleet_parts(config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> Parts:
    """Return parts whose evaluator is a fleet."""

    async def started(request: EvaluationRequest, host: str) -> None:
        if request.candidate:
            await store.change(mark_started, request.candidate, host)

    setup = Setup(EvaluateConfig(slots=8), DevicesConfig(), MAKER)
    fleet = Fleet(RayHosts(os.environ["FLEET_ADDRESS"], setup), 64, on_start=started)

    async def make_search(run: Run, control: RunControl) -> Searching:
        return Search(run, search_parts(store, fleet), control)

    return Parts(fleet, make_search, fleet=fleet)


if __name__ == "__main__":
    sys.exit(main(make_parts=fleet_parts))
