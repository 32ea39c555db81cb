"""``acceld clean``: free the disk space of data that acceld can make again."""

from __future__ import annotations

import argparse
import shutil

from acceld.cli.arguments import add_json
from acceld.cli.commands.status import size
from acceld.cli.output import answer
from acceld.errors import UsageError
from acceld.home import DATASETS, find_home
from acceld.private_files import no_access


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--all", action="store_true", help="also noise floors and compiled kernels (no daemon may run)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Remove the stored data sets that no evaluation uses, and return the exit code.

    All state folders of one user share these data sets. Raise UsageError for ``--all`` while a daemon runs.
    """
    from acceld.evaluate.correctness import datasets

    home = find_home(arguments.home)
    if arguments.all and home.daemon() is not None:
        raise UsageError("a daemon uses the data that --all removes", hint="acceld stop, or acceld clean without --all")
    others = home.made_again if arguments.all else ()
    place, former = home.datasets, home.path / DATASETS  # earlier releases kept the data sets in ``former``
    before = datasets.size_bytes(place)
    freed = 0 if former == place else datasets.size_bytes(former) - datasets.trim(former, 0)
    freed += sum(file.lstat().st_size for folder in others for file in folder.rglob("*") if file.is_file())
    used = datasets.trim(place, 0)
    freed += before - used
    for folder in others:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:  # the error may name a file without its folder
            raise no_access(OSError(error.errno, error.strerror, str(folder))) from error
    where = " and ".join(str(one) for one in ((place, home.path) if arguments.all else (place,)))
    text = f"freed {size(freed)} in {where}" + (f"; {size(used)} are in use" if used else "")
    return answer(arguments, {"home": str(home.path), "freed_bytes": freed, "in_use_bytes": used}, text)
