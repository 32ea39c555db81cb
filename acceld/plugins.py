"""Find additions to acceld by the entry points of installed packages.

========================  ============================================================================
group                     an entry point names
========================  ============================================================================
``acceld.backends``       a :class:`acceld.device.Device`: hardware, its evaluator and its rewrite rules
``acceld.rules``          a :class:`acceld.proposers.rules.records.Rule`
``acceld.workloads``      a folder of workload folders, as a path
``acceld.providers``      a function from model settings to a client of a model provider
========================  ============================================================================

An addition that can not be loaded, or does not fit its group, is listed by :func:`broken` with the reason, and changes
nothing else. docs/plugins.md has an example of each.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

GROUPS = ("acceld.backends", "acceld.rules", "acceld.workloads", "acceld.providers")


@dataclass(frozen=True, slots=True)
class Plugin:
    """An addition that an installed package declares by an entry point."""

    group: str
    name: str
    package: str
    """The installed package and its version."""
    value: Any


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point that can not be used, with the reason."""

    group: str
    name: str
    package: str
    reason: str


_broken: dict[tuple[str, str, str], BrokenPlugin] = {}


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """Return what installed packages add to a group, sorted by name. Each addition is loaded once, at the first
    call.
    """
    if not _declared():
        return ()
    from importlib.metadata import entry_points

    found = []
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        try:
            value = point.load()
        except Exception as error:  # noqa: BLE001  somebody else's code may fail in any way, and must not stop ours
            refuse(Plugin(group, point.name, _package(point), None), f"{type(error).__name__}: {error}")
        else:
            found.append(Plugin(group, point.name, _package(point), value))
    return tuple(found)


@cache
def _declared() -> bool:
    """Tell whether an installed package may declare an addition.

    If not, ``importlib.metadata`` need not be imported, which takes 20 ms.
    """
    others = [one for one in sys.meta_path if hasattr(one, "find_distributions") and one is not PathFinder]
    folders = [Path(one) for one in dict.fromkeys(sys.path)]
    if others or any(folder.is_file() for folder in folders):
        return True
    return any(
        group.encode() in listed.read_bytes()
        for folder in folders
        for listed in (*folder.glob("*.dist-info/entry_points.txt"), *folder.glob("*.egg-info/entry_points.txt"))
        for group in GROUPS
    )


def accepted(group: str, fits: Callable[[Any], str]) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group that fit.

    ``fits`` returns an empty text for a value that fits, else the reason why it does not. Plug-ins that do not fit are
    listed by :func:`broken` with that reason.
    """
    good = []
    for plugin in plugins(group):
        reason = fits(plugin.value)
        if reason:
            refuse(plugin, reason)
        else:
            good.append(plugin)
    return tuple(good)


def refuse(plugin: Plugin, reason: str) -> None:
    """Record a plug-in as broken, with the reason, and write this to the log once."""
    one = BrokenPlugin(plugin.group, plugin.name, plugin.package, reason)
    key = (one.group, one.name, one.package)
    if key not in _broken:
        _broken[key] = one
        log.warning("plug-in %s of %s (%s) can not be used: %s", one.name, one.package, one.group, one.reason)


def broken() -> tuple[BrokenPlugin, ...]:
    """Return the plug-ins that can not be used, of the groups that were asked for so far."""
    return tuple(_broken.values())


def packages_below(package: str) -> tuple[str, ...]:
    """Return the dotted names of the packages directly inside a package, sorted."""
    folder = import_module(package).__path__
    return tuple(sorted(f"{package}.{found.name}" for found in iter_modules(folder) if found.ispkg))


def named(reference: str) -> Any:
    """Import and return what ``module:attribute`` names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
