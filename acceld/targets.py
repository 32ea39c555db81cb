"""List the backends, and the APIs and chips that each evaluates.

The simulator always exists. Each package in ``acceld/devices``, and each entry point in the group
``acceld.backends``, adds a :class:`Device` with its backends. Deleting the folder of a device removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any

from acceld import plugins
from acceld.chips import API_CHIPS, CURRENT_API, NKI_DEFAULT, NKI_VERSIONS, REPORTED_CHIPS, chips_of
from acceld.device import Device, Target
from acceld.errors import UsageError, did_you_mean
from acceld.model import Source

SIMULATOR = "simulator"
DEVICES = "acceld.devices"
"""The package that contains acceld's own devices."""


def _devices() -> Iterator[Device]:
    """Yield the devices of acceld, then those of installed packages whose backends have new names."""
    taken = {SIMULATOR}
    for package in plugins.packages_below(DEVICES):
        device: Device = import_module(package).DEVICE
        taken |= {target.backend for target in device.targets}
        yield device

    def fault(value: Any) -> str:
        if not isinstance(value, Device):
            return f"{value!r} is not an acceld.device.Device"
        twice = sorted(taken & {target.backend for target in value.targets})
        return f"there is a backend {twice[0]!r} already" if twice else ""

    for plugin in plugins.accepted("acceld.backends", fault):
        taken |= {target.backend for target in plugin.value.targets}
        yield plugin.value


ALL_DEVICES: tuple[Device, ...] = tuple(_devices())
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.backend: target
        for target in (
            Target(SIMULATOR, {api: chips_of(api) for api in API_CHIPS}, Source.SIMULATED),
            *(target for device in ALL_DEVICES for target in device.targets),
        )
    }
)
"""Every backend, by name."""
DEVICE_OF: Mapping[str, Device] = MappingProxyType(
    {target.backend: device for device in ALL_DEVICES for target in device.targets}
)
"""The device behind each backend, except the simulator."""

APIS = tuple(dict.fromkeys(api for target in TARGETS.values() for api in target.apis))
SIMULATED_CHIPS = tuple(sorted({chip for chips in TARGETS[SIMULATOR].chips.values() for chip in chips}))
CHIPS = tuple(dict.fromkeys(chip for target in TARGETS.values() for chips in target.chips.values() for chip in chips))


def nki_version(asked: str) -> str:
    """Return the version of the package ``nki`` by which kernels are judged.

    ``asked`` is a version, or ``auto`` for the version that is installed on this machine; if none is installed, for the
    default version. For an unknown installed version the result is the nearest known version.
    """
    if asked != "auto":
        return asked
    found = next(filter(None, (plugins.named(one.nki_version)() for one in ALL_DEVICES if one.nki_version)), "")
    return nearest_nki(found) if found else NKI_DEFAULT


def nearest_nki(version: str) -> str:
    """Return the known version of ``nki`` nearest to ``version``: ``0.7`` for ``0.8``, if 0.7 is the newest
    known.
    """
    known = {tuple(map(int, one.split("."))): one for one in NKI_VERSIONS}
    number = tuple(map(int, version.split(".")[:2]))
    return next((one for least, one in known.items() if number <= least), NKI_VERSIONS[-1])


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, with an API that it takes and a chip on which it evaluates kernels of that API."""

    backend: str
    api: str
    chip: str


def default_choice(default: Choice, sets: Callable[[str], bool], offered: Iterable[str]) -> Choice:
    """Return backend, API and chip for a workload from the configured ``default``.

    The current API and its first chip take the place of values that the configuration does not set, if the current
    API is the first of ``offered``, or if ``offered`` is empty because the kernel is still to be lowered. ``sets``
    tells whether the configuration sets a dotted key.
    """
    chips = API_CHIPS[CURRENT_API]
    if next(iter(offered), CURRENT_API) != CURRENT_API or sets("search.api"):
        return default
    if not sets("search.chip"):
        return replace(default, api=CURRENT_API, chip=chips[0])
    return replace(default, api=CURRENT_API) if default.chip in chips else default


def choose(
    default: Choice,
    *,
    backend: str | None = None,
    api: str | None = None,
    chip: str | None = None,
    offered: Collection[str] = (),
    runs_on: Collection[str] = (),
) -> Choice:
    """Return backend, API and chip for a kernel, from what a person asked for and the configured ``default``.

    A value that was asked for counts. Any other value comes from the default if that value fits; else it is the first
    value that fits. A chip on which AWS does not support an API (:data:`acceld.chips.REPORTED_CHIPS`) must be asked
    for, and counts only if no other API fits. ``offered`` are the APIs for which there is a kernel, and ``runs_on``
    the chips that the kernel is for; empty means any. If the default backend measures, the simulator takes its place
    only if no other backend can measure. Raise UsageError, which names both values, if two values that were asked
    for do not go together.
    """
    for name, value, known in (("backend", backend, TARGETS), ("API", api, APIS), ("chip", chip, CHIPS)):
        if value is not None and value not in known:
            raise UsageError(
                f"there is no {name} {value!r}. {did_you_mean(value, known)}".rstrip(),
                hint=f"One of {', '.join(known)}.",
            )
    first = TARGETS[default.backend]
    targets = [first, *sorted(TARGETS.values(), key=lambda one: one.source is not first.source)]
    named = {chip, *runs_on} - {None}
    for unsupported in (False, True):
        for target in targets:
            if backend not in (None, target.backend):
                continue
            fits = {
                one: [
                    c
                    for c in target.chips[one]
                    if chip in (None, c)
                    and (not runs_on or c in runs_on)
                    and (c not in REPORTED_CHIPS.get(one, ()) or (unsupported and c in named))
                ]
                for one in target.apis
                if api in (None, one) and (not offered or one in offered)
            }
            apis = [one for one, chips in fits.items() if chips]
            if apis:
                chosen = default.api if default.api in apis else apis[0]
                chips = fits[chosen]
                return Choice(target.backend, chosen, default.chip if default.chip in chips else chips[0])
    if offered or runs_on:
        choose(default, backend=backend, api=api, chip=chip)
        asked = " and ".join(one for one in (backend, api, chip) if one)
        chips_by_api = {one: [c for target in TARGETS.values() for c in target.chips.get(one, ())] for one in offered}
        kernels = "kernels"
        if offered and chip is not None and not runs_on and api is None and backend is None:
            told = [f"{one} ({', '.join(dict.fromkeys(chips))})" for one, chips in chips_by_api.items()]
            raise UsageError(
                f"the workload has no kernel that runs on {chip}; it has kernels for {' and '.join(told)}",
                hint="Choose one of these chips, or name another workload.",
            )
        if offered:
            kernels = f"kernels for {' and '.join(offered)}"
        where = f" on {' and '.join(runs_on)}" if runs_on else ""
        raise UsageError(
            f"the workload has no kernel for {asked}; it has {kernels}{where}",
            hint="Choose with --backend, --api and --chip, or name another workload.",
        )
    raise _mismatch(backend, api, chip)


def _mismatch(backend: str | None, api: str | None, chip: str | None) -> UsageError:
    takers = [one for one in TARGETS.values() if backend in (None, one.backend)]
    if backend is not None and api is not None and api not in TARGETS[backend].apis:
        return UsageError(
            f"backend {backend} does not take API {api}", hint=f"{backend} takes {', '.join(TARGETS[backend].apis)}"
        )
    if api is not None:
        chips = next(one.chips[api] for one in takers if api in one.apis)
        return UsageError(
            f"API {api} does not support {chip}", hint=f"{api} runs on {' and '.join(chips)}: change --chip or --api"
        )
    return UsageError(
        f"backend {backend} does not support {chip}",
        hint="; ".join(f"{one}: {', '.join(chips)}" for one, chips in TARGETS[str(backend)].chips.items()),
    )
