"""What candidates can be written for and run on: which backend takes which APIs and chips, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from acceld.chips import API_CHIPS
from acceld.errors import UsageError, did_you_mean
from acceld.model import Source


@dataclass(frozen=True, slots=True)
class Target:
    """One backend: the APIs of its kernels, the chips of each, and what its latencies are."""

    backend: str
    chips: Mapping[str, tuple[str, ...]]
    """By API; the first chip is the one meant where nobody says."""
    source: Source

    @property
    def apis(self) -> tuple[str, ...]:
        """APIs it takes; the first is the one meant where nobody says."""
        return tuple(self.chips)


def _target(backend: str, source: Source, **chips: tuple[str, ...]) -> Target:
    return Target(backend, MappingProxyType(chips), source)


SIMULATOR = "simulator"
NEURON = ("neuron_legacy", "neuron")
"""Backends that run on Trainium."""
GPUS = ("h100", "h200", "a100", "b200", "l40s", "l4")
HOSTED = frozenset({"cpu", "cuda"})
"""Backends whose kernels run with data in a process of this machine, timed from outside of it."""
HOST = "host"
"""The chip of the machine the daemon runs on: its CPU."""

TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.backend: target
        for target in (
            _target(SIMULATOR, Source.SIMULATED, **API_CHIPS),
            _target("neuron_legacy", Source.MEASURED, nki_legacy=API_CHIPS["nki_legacy"]),
            _target("neuron", Source.MEASURED, nki=API_CHIPS["nki"]),
            _target("cuda", Source.MEASURED, triton=GPUS),
            _target("cpu", Source.MEASURED, c=(HOST,), numpy=(HOST,)),
        )
    }
)
"""Every backend, by name."""

APIS = tuple(dict.fromkeys(api for target in TARGETS.values() for api in target.apis))
SIMULATED_CHIPS = tuple(sorted({chip for chips in TARGETS[SIMULATOR].chips.values() for chip in chips}))
CHIPS = tuple(dict.fromkeys(chip for target in TARGETS.values() for chips in target.chips.values() for chip in chips))


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, an API it takes and a chip of that API."""

    backend: str
    api: str
    chip: str


def choose(default: Choice, *, backend: str | None = None, api: str | None = None, chip: str | None = None) -> Choice:
    """What was asked for decides; what was left open is the default's where that fits, else the first that does.

    A default that measures is not left for a simulation while another backend can measure.

    UsageError naming both sides where what was asked for does not go together.
    """
    for name, value, known in (("backend", backend, TARGETS), ("API", api, APIS), ("chip", chip, CHIPS)):
        if value is not None and value not in known:
            raise UsageError(
                f"there is no {name} {value!r}. {did_you_mean(value, known)}".rstrip(),
                hint=f"One of {', '.join(known)}.",
            )
    first = TARGETS[default.backend]
    for target in (first, *sorted(TARGETS.values(), key=lambda one: one.source is not first.source)):
        if backend not in (None, target.backend):
            continue
        apis = [one for one in target.apis if (api or one) == one and (chip is None or chip in target.chips[one])]
        if apis:
            chosen = default.api if default.api in apis else apis[0]
            chips = target.chips[chosen]
            return Choice(target.backend, chosen, chip or (default.chip if default.chip in chips else chips[0]))
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
