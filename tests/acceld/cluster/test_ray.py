"""Use a real Ray cluster on this machine, with small object stores. ``make bench-fleet`` is the longer form."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.cluster import remote
from acceld.cluster.host import HostLostError
from acceld.cluster.remote import RayHosts, Setup
from acceld.config import DevicesConfig, EvaluateConfig
from scripts.bench_fleet import disturbed, kill_daemons, killed
from tests.acceld.cluster.conftest import World
from tests.acceld.cluster.runs import Decisions, decide

pytestmark = [pytest.mark.slow]
NAMES = ("h0", "h1")


@pytest.fixture(autouse=True)
def ray() -> None:
    """Ray, or the test is skipped: ``pip install 'acceld[cluster]'``."""
    pytest.importorskip("ray")


@pytest.fixture
async def expected(tmp_path: Path) -> Decisions:
    """Return the decisions of hosts in this process."""
    world = World(tmp_path / "undisturbed")
    await world.add("a", 8)
    try:
        return await decide(world.fleet, tmp_path / "undisturbed.db")
    finally:
        await world.fleet.stop(0.0)


async def test_a_run_decides_the_same_when_a_node_is_killed(tmp_path: Path, expected: Decisions) -> None:
    assert await disturbed(tmp_path, NAMES, killed) == expected


def test_a_run_decides_the_same_when_its_daemon_is_killed(tmp_path: Path, expected: Decisions) -> None:
    assert kill_daemons(tmp_path, 1, NAMES) == expected


async def test_a_missing_cluster_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    monkeypatch.setattr(remote, "CONNECT_S", 10.0)
    hosts = RayHosts("127.0.0.1:1", Setup(EvaluateConfig(), DevicesConfig()))
    await hosts.start()
    with pytest.raises(HostLostError, match=r"127\.0\.0\.1:1 can not be reached"):
        await hosts.found(0)
    await hosts.close()
