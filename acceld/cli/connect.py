"""Reaching the daemon from a command, starting one where none runs."""

from __future__ import annotations

from acceld import config
from acceld.client import Client
from acceld.home import Home, find_home


def connected(home: str | None) -> tuple[Home, Client]:
    """The state folder and a client of its daemon; a daemon that ends when idle is started where none runs."""
    from acceld.cli.commands.start import ensure_daemon

    found = find_home(home)
    ensure_daemon(found, idle_exit_s=config.load().config.daemon.idle_exit_s)
    return found, Client(found)
