"""The daemon's side of the child that talks to Ray, tested without Ray."""

from __future__ import annotations

import pytest

from acceld.cluster import remote
from acceld.cluster.host import HostLostError
from acceld.cluster.remote import RayHosts, Setup
from acceld.config import DevicesConfig, EvaluateConfig


class FakeBridge:
    """A child that knows only one incarnation of the cluster."""

    life = 0
    made = 0

    def __init__(self, address: str, setup: Setup) -> None:
        type(self).made += 1
        self.ended, self._life = False, FakeBridge.life

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Mark the child as ended."""
        self.ended = True

    async def call(self, kind: str, *arguments: object) -> dict[str, str]:
        """Return the hosts of the incarnation that it knows."""
        if self._life != FakeBridge.life:
            raise HostLostError("WrongClusterID")
        return {"a": "1"}


async def test_a_child_that_does_not_find_the_restarted_head_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_Bridge", FakeBridge)
    monkeypatch.setattr(FakeBridge, "life", 0)
    monkeypatch.setattr(FakeBridge, "made", 0)
    monkeypatch.setattr(remote, "find_spec", lambda name: True)
    hosts = RayHosts("127.0.0.1:1", Setup(EvaluateConfig(), DevicesConfig()))
    await hosts.start()
    first = (await hosts.found(1))["a"]
    assert (await hosts.found(1))["a"] is first
    FakeBridge.life = 1
    for _ in range(3):
        with pytest.raises(HostLostError):
            await hosts.found(1)
    assert (await hosts.found(1))["a"] is not first
    assert FakeBridge.made == 2


def test_neither_keys_nor_token_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("ACCELD_TOKEN", "secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    kept = remote.environment()
    assert "secret" not in kept.values()
    assert kept["RAY_AUTH_MODE"] == "token"
    assert "PATH" in kept
