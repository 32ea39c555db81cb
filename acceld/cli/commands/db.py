"""``acceld db``: back up, restore, shrink or prune the history's database."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from contextlib import closing
from pathlib import Path

from acceld.cli.arguments import add_json
from acceld.cli.commands.status import size
from acceld.cli.connect import check_history
from acceld.cli.output import answer, say
from acceld.errors import UsageError, no_file
from acceld.home import Home, find_home

_SPAN = re.compile(r"^(\d+)([hdwm])$")
_UNITS_S = {"h": 3600, "d": 86400, "w": 604800, "m": 2629800}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "what", choices=("backup", "restore", "vacuum", "prune", "path", "migrations"), help="what to do"
    )
    parser.add_argument(
        "target", nargs="?", metavar="FILE", help="backup: path of the new copy; restore: path of the copy to restore"
    )
    parser.add_argument("--older", metavar="SPAN", help="prune: runs that ended so long ago, such as 30d, 12h, 6m")
    parser.add_argument("--dry-run", action="store_true", help="prune: only print what would be deleted")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Back up, restore, shrink or prune the database, as the first argument says, and return the exit code."""
    home = find_home(arguments.home)
    return {
        "path": _path,
        "migrations": _migrations,
        "backup": _backup,
        "restore": _restore,
        "vacuum": _vacuum,
        "prune": _prune,
    }[arguments.what](home, arguments)


def _path(home: Home, arguments: argparse.Namespace) -> int:
    return answer(arguments, {"database": str(home.database)}, str(home.database))


def _migrations(home: Home, arguments: argparse.Namespace) -> int:
    from sqlite_utils import Database

    from acceld.store.connection import connect_reader
    from acceld.store.schema.migrations import collected, names

    with closing(connect_reader(home.database)) as connection:
        applied = {one.name: one.applied_at for one in collected().applied(Database(connection, execute_plugins=False))}
    found = [{"name": name, "applied_at": applied.get(name)} for name in names()]
    shown = "\n".join(f"{name}  {applied.get(name, 'not applied')}" for name in names())
    return answer(arguments, {"migrations": found}, shown)


def _backup(home: Home, arguments: argparse.Namespace) -> int:
    from acceld.store.maintenance import backup

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = Path(arguments.target) if arguments.target else home.backups / f"acceld-{stamp}.db"
    written = backup(home.database, target.absolute())
    return answer(arguments, {"backup": str(target), "bytes": written}, f"{target}  {size(written)}")


def _restore(home: Home, arguments: argparse.Namespace) -> int:
    from acceld.store.maintenance import restore

    if not arguments.target:
        raise UsageError(
            "restore needs the file of a copy", hint=f"acceld db restore FILE; copies are in {home.backups}."
        )
    copy = Path(arguments.target).absolute()
    if copy == home.database:
        raise UsageError(f"{copy} is the history itself", hint=f"Copies are in {home.backups}.")
    if not copy.is_file():
        raise no_file(arguments.target, hint=f"Copies are in {home.backups}.")
    _not_served(home, f"restore {arguments.target}")
    home.prepare()
    aside = restore(home.database, copy)
    shown = f"{home.database} is {copy} again" + (f"; the former content is in {aside}" if aside else "")
    return answer(arguments, {"restored": str(copy), "replaced": str(aside) if aside else None}, shown)


def _vacuum(home: Home, arguments: argparse.Namespace) -> int:
    from acceld.store.maintenance import size_bytes, vacuum

    check_history(home)
    _not_served(home, "vacuum")
    before = size_bytes(home.database)
    vacuum(home.database)
    after = size_bytes(home.database)
    return answer(arguments, {"bytes_before": before, "bytes_after": after}, f"{size(before)} -> {size(after)}")


def _prune(home: Home, arguments: argparse.Namespace) -> int:
    from acceld.store.database import Store
    from acceld.store.maintenance import forget_runs, old_runs

    match = _SPAN.match(arguments.older or "")
    if match is None:
        raise UsageError("prune needs --older SPAN", hint="SPAN is a time span, such as 30d, 12h, 8w or 6m (months).")
    check_history(home)
    before = time.time() - int(match[1]) * _UNITS_S[match[2]]
    if arguments.dry_run:
        counts = old_runs(home.database, before)
    else:
        _not_served(home, "prune")

        async def forget() -> dict[str, int]:
            store = await asyncio.to_thread(Store.open, home.database)
            try:
                return await store.change(forget_runs, before)
            finally:
                await store.close()

        counts = asyncio.run(forget())
    if not (arguments.json or arguments.dry_run) and counts["runs"]:
        say("acceld db vacuum gives the space back")
    gone = f"{', '.join(f'{count} {name}' for name, count in counts.items())} {'would be deleted' if arguments.dry_run else 'deleted'}"
    return answer(arguments, {"pruned": counts, "dry_run": arguments.dry_run}, f"{gone}; insights are kept")


def _not_served(home: Home, what: str) -> None:
    if home.is_served():
        raise UsageError(
            f"a daemon uses {home.database}, which acceld db {what} changes",
            hint=f"acceld stop, then acceld db {what}.",
        )
