"""``acceld pause|resume|cancel|pin|veto|hint|budget``: steer a run. The history records each action and who did
it.
"""

from __future__ import annotations

import argparse
from typing import Any

from acceld.cli.arguments import add_json, amount, number_of
from acceld.cli.connect import run_number
from acceld.cli.output import print_json, say
from acceld.client import Client
from acceld.home import find_home
from acceld.model import RunState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    name = parser.prog.split()[-1]
    if name in ("pin", "veto"):
        parser.add_argument("candidate", metavar="c345", help="the candidate")
        parser.add_argument("--off", action="store_true", help=f"take an earlier {name} back")
    else:
        parser.add_argument("run", metavar="r12", help="the run, by id or name")
    if name == "hint":
        parser.add_argument("text", help="such as: 'try keeping the weights in SBUF across row tiles'")
    if name == "budget":
        parser.add_argument("usd", type=amount, metavar="USD", help="the new cap; a run that waits for it continues")
    add_json(parser)
    parser.set_defaults(action=name)


def run(arguments: argparse.Namespace) -> int:
    """Send the action to the daemon, and print the answer. The daemon answers when the action has taken effect
    or is stored.
    """
    client = Client(find_home(arguments.home))
    body: dict[str, Any] = {"action": arguments.action}
    if arguments.action in ("pin", "veto"):
        candidate = number_of(arguments.candidate, "c")
        body["candidate"] = candidate
        if arguments.off:
            body["action"] = f"un{arguments.action}"
        run_id = client.get(f"/v1/candidates/{candidate}")["run"]
    else:
        run_id = run_number(arguments.home, arguments.run)
    if arguments.action == "hint":
        body["text"] = arguments.text
    if arguments.action == "budget":
        body["usd"] = arguments.usd
    answer = client.send("POST", f"/v1/runs/{run_id}/actions", body)
    if arguments.action == "budget" and client.get(f"/v1/runs/{run_id}")["state"] == RunState.PAUSED:
        answer = client.send("POST", f"/v1/runs/{run_id}/actions", {"action": "resume"}) | {"result": answer["result"]}
    if arguments.json:
        print_json({"action": answer["action"], "result": answer["result"], "run": answer["run"]})
    else:
        say(f"r{run_id}: {answer['result'] or arguments.action}")
    return 0
