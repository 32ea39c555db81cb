"""``acceld status``: show the state of the daemon. This module imports little, so that the command answers quickly."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.client import Client
from acceld.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_json(parser)
    parser.add_argument("--ready", action="store_true", help="only say whether the daemon takes runs: exit code 0 or 3")


def run(arguments: argparse.Namespace) -> int:
    """Print the daemon's state. Raise DaemonError (exit code 3) if no daemon runs; with ``--ready`` also if
    the daemon accepts no runs.
    """
    home = find_home(arguments.home)
    if arguments.ready:
        Client(home, timeout_s=10.0).get("/v1/ready")
        print(json.dumps({"version": 1, "ready": True}) if arguments.json else "ready")
        return 0
    status = Client(home, timeout_s=10.0).get("/v1/status")
    if arguments.json:
        json.dump({"version": 1} | {"acceld": status.pop("version")} | status, sys.stdout, indent=2)
        print()
    else:
        print("\n".join(lines(status)))
    return 0


def lines(status: dict[str, Any]) -> list[str]:
    """Return the status as lines for people."""
    runs, queue, storage = status["runs"], status["queue"], status["storage"]
    shown = [
        f"acceld {status['version']}  {status['state']}  pid {status['pid']}  up {duration(status['uptime_s'])}",
        f"home      {status['home']}",
        f"runs      {', '.join(f'{count} {state}' for state, count in runs.items() if count) or 'none yet'}",
    ]
    for run in status["active"]:
        best = figures.brief_latency(run["best_latency_us"], run["source"])
        gain = f"{run['speedup']:.2f}x" if run["speedup"] else "-"
        shown.append(
            f"  r{run['id']:<4} {run['state']:<8} {plain(run['workload']):<28} iteration {run['iteration']}/{run['iterations']}"
            f"  {run['evaluated']}/{run['candidates']} evaluated  best {best} {gain}"
        )
    busy = f"{queue['slots_in_use']}/{queue['slots']} slots busy now" if "slots" in queue else "-"
    if queue.get("busy_share") is not None:
        busy += f" ({100 * queue['busy_share']:.0f} % on average while kernels waited)"
    waiting = queue.get("waiting", 0)
    shown += [
        f"queue     {busy}, {waiting} waiting, sandbox {queue.get('sandbox_level') or '-'}",
        *(f"cores     {plain(reported)}" for reported in figures.cores(queue)),
        f"storage   {size(storage['bytes'])}, {size(storage['free_bytes'])} free"
        + (f"  DEGRADED: {storage['degraded']}" if storage["degraded"] else ""),
        f"data sets {size(storage['data_bytes'])} of {size(storage['data_cap_bytes'])}",
        f"spent     {'?' if status['cost_usd'] is None else format(status['cost_usd'], '.4f')} USD",
    ]
    shown += [f"WAITS     {plain(text)}" for text in status["waits_for"] if text != storage["degraded"]]
    if status["idle_exit_s"] is not None:
        shown.append(f"ends      after {status['idle_exit_s']:g} s without runs and clients")
    return shown


def plain(text: str) -> str:
    """Return ``text`` without characters that control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def duration(seconds: float) -> str:
    """Return a time span in its two largest units, such as ``2 h 10 m``."""
    whole = int(seconds)
    for unit, length, lower, lower_length in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length}{unit}{whole % length // lower_length:02}{lower}"
    return f"{whole}s"


def size(count: int) -> str:
    """Return a number of bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return ""
