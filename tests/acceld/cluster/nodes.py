"""Start Ray nodes on this machine whose devices are delays, and cause faults in them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acceld.cluster.fleet import Fleet
from acceld.cluster.remote import RayHosts, Setup
from acceld.config import DevicesConfig, EvaluateConfig
from acceld.evaluate.sandbox.process_tree import descendants
from tests.acceld.cluster.simulated_device import SETTINGS

ROOT = Path(__file__).parents[3]
MAKER = "tests.acceld.cluster.simulated_device:make"
STORE_BYTES = 80 << 20
"""Cap of each node's object store."""


class Nodes:
    """Manage a cluster of a head and hosts."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._settings = folder / "hosts.json"
        self._reported: dict[str, dict[str, Any]] = {"*": {"delay_s": 0.3}}
        self.instruct("*")
        self._cluster: Any = None
        self._make = Cluster
        self._nodes: dict[str, Any] = {}

    def start(self, *names: str, port: int | None = None) -> None:
        """Start the head, then a node for each name."""
        head = {"num_cpus": 0, "include_dashboard": False} | ({"gcs_server_port": port} if port else {})
        self._cluster = self._make(
            initialize_head=True, head_node_args={**head, **self._common()}, shutdown_at_exit=_handles_signals()
        )
        for name in names:
            self.add(name)

    @staticmethod
    def _common() -> dict[str, Any]:
        return {"object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}

    def add(self, name: str) -> None:
        """Start a host."""
        self._cluster._shutdown_at_exit = _handles_signals()
        self._nodes[name] = self._cluster.add_node(
            num_cpus=1, resources={"acceld": 1}, node_name=name, wait=True, **self._common()
        )

    @property
    def address(self) -> str:
        """Return the address that daemons connect to."""
        return str(self._cluster.address)

    def instruct(self, name: str, **settings: object) -> None:
        """Change the settings of a host's device; ``*`` stands for all hosts."""
        self._reported.setdefault(name, {}).update(settings)
        partial = self._settings.with_suffix(".partial")
        partial.write_text(json.dumps(self._reported), encoding="utf-8")
        partial.replace(self._settings)

    def processes(self, name: str) -> list[int]:
        """Return the raylet of a host and all processes below it."""
        raylet: int = self._nodes[name].all_processes["raylet"][0].process.pid
        return [raylet, *descendants(raylet)]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to every process of a host."""
        for pid in self.processes(name):
            os.kill(pid, number)

    def kill(self, name: str) -> None:
        """Kill a host."""
        self.signal(name, signal.SIGKILL)
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def restart(self) -> None:
        """Kill the head and the nodes, since only the head stores their cluster; then start all of them again on the
        same port.
        """
        names, port = tuple(self._nodes), int(self.address.rpartition(":")[2])
        for name in names:
            self.kill(name)
        self.stop()
        self.start(*names, port=port)

    def stop(self) -> None:
        """Stop all nodes."""
        self._nodes.clear()
        if self._cluster is not None:
            self._cluster.shutdown()

    def setup(self, slots: int) -> Setup:
        """Return the settings of hosts with ``slots`` simulated cores each."""
        return Setup(EvaluateConfig(slots=slots), DevicesConfig(), MAKER)

    def fleet(self, slots: int, queue_size: int = 64) -> Fleet:
        """Return a fleet over the nodes."""
        return Fleet(RayHosts(self.address, self.setup(slots)), queue_size)


def _handles_signals() -> bool:
    """Return True in the main thread: only there can Ray set the handler of signals that ends its nodes with this
    process.
    """
    return threading.current_thread() is threading.main_thread()


@contextmanager
def nodes(folder: Path, *names: str) -> Iterator[Nodes]:
    """Yield started nodes, whose processes see the tests and the settings of their devices."""
    changed: Mapping[str, str] = {
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # not 15: beside other work on the machine no task would begin
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: loopback only
        SETTINGS: str(folder / "hosts.json"),
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    made = Nodes(folder)
    try:
        made.start(*names)
        yield made
    finally:
        made.stop()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
