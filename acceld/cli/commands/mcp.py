"""``acceld mcp``: serve the tools for coding agents over the Model Context Protocol."""

from __future__ import annotations

import argparse
import asyncio

from acceld import config
from acceld.agents.places import opened
from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder whose kernels and workloads agents may name (default: the folder that the server runs in); may be repeated",
    )
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="streamable HTTP on loopback, behind the daemon's token (default: stdio)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve the tools until the client disconnects or the command is interrupted, and return the exit code."""
    try:
        from acceld.agents import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        raise UsageError("the package mcp is not installed", hint="pip install 'acceld[mcp]'") from error
    from acceld.agents.toolbox import Toolbox
    from acceld.daemon.launch import ensure
    from acceld.http.server import parse_tcp, refuse_taken

    settings = config.load().config
    home, places = find_home(arguments.home), opened(arguments.root, settings)
    home.prepare()
    if arguments.http is None:
        asyncio.run(server.serve_stdio(Toolbox(home, places)))
        return 0
    host, port = parse_tcp(arguments.http, "--http ")
    refuse_taken(host, port, "--http")
    ensure(home, idle_exit_s=settings.daemon.idle_exit_s)
    say(f"serving http://{host}:{port}/mcp; clients send the token in {home.token_file} as Authorization: Bearer")
    asyncio.run(server.serve_http(Toolbox(home, places), host, port))
    return 0
