"""``acceld hosts``: list the hosts of a cluster with load, cost and the reason why a host is idle; or drain a
host.
"""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_table, say
from acceld.client import Client
from acceld.errors import UsageError
from acceld.home import find_home

HEADERS = ("host", "state", "busy", "done", "instance", "chip", "sdk", "driver", "USD/h", "USD", "why idle")
RIGHT = frozenset({2, 3, 8, 9})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", nargs="?", choices=("list", "drain", "undrain"), default="list", help="default: list")
    parser.add_argument("host", nargs="?", help="with drain: running work ends, no new work is sent")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the hosts, drain a host, or give a drained host work again. Raise DaemonError (exit code 3) if no daemon
    runs.
    """
    client = Client(find_home(arguments.home))
    if arguments.action != "list":
        if not arguments.host:
            raise UsageError(f"{arguments.action} needs the name of a host", hint="acceld hosts lists the hosts.")
        client.send("POST", f"/v1/hosts/{quote(arguments.host, safe='')}/{arguments.action}")
    hosts: list[dict[str, Any]] = client.get("/v1/hosts")["hosts"]
    if arguments.json:
        print_json({"hosts": hosts})
    elif hosts:
        print_table([line(host) for host in hosts], HEADERS, right=RIGHT)
    else:
        waits = "; ".join(client.get("/v1/status")["waits_for"])
        say(
            f"the daemon has no hosts yet: {waits}"
            if waits
            else "the daemon has no hosts: it evaluates on its own machine, or waits for the first host of devices.cluster (docs/fleet.md)"
        )
    return 0


def line(host: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a host's row."""
    return (
        host["host"],
        host["standing"],
        f"{host['slots_in_use']}/{host['slots']}",
        str(host["done"]),
        host["instance_type"] or "-",
        host["chip"] or "-",
        host["sdk"] or "-",
        host["driver"] or "-",
        "?" if host["usd_per_hour"] is None else f"{host['usd_per_hour']:.2f}",
        "?" if host["usd"] is None else figures.usd(host["usd"]),
        host["why_idle"] or "-",
    )
