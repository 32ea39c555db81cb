"""Compare two profiles of a kernel: exact counts first, then the model's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acceld import figures
from acceld.model import Profile

SHOWN: Mapping[str, str] = {
    "hbm_read_bytes": "read from HBM",
    "hbm_write_bytes": "written to HBM",
    "short_dma_rows": "DMA rows below 512 B",
    "instruction_count": "instructions",
    "sbuf_peak_bytes_per_partition": "SBUF peak a partition",
    "psum_peak_banks": "PSUM peak banks",
    "spill_save_bytes": "spilled",
    "spill_reload_bytes": "reloaded",
}
"""Counters whose changes are reported, each with its title."""
LEAST = 0.005
"""Least relative change that is reported."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One figure of a profile before and after a change of the kernel."""

    name: str
    title: str
    before: float
    after: float
    exact: bool
    """False if the figure depends on what the compiler is assumed to do."""

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Return title, value before, value after and change, such as ``read from HBM``, ``32.0 MB``, ``16.0 MB``,
        ``-50 %``.
        """
        change = f"{100 * (self.after / self.before - 1):+.0f} %" if self.before else ""
        shown = size if "bytes" in self.name else engine if self.name.startswith("engine ") else count
        return self.title, shown(self.before), shown(self.after), change

    @property
    def text(self) -> str:
        """Return the change as text: ``read from HBM 32.0 MB -> 16.0 MB (-50 %)``."""
        title, before, after, change = self.columns
        return f"{title} {before} -> {after}" + (f" ({change})" if change else "")


def deltas(before: Profile, after: Profile) -> tuple[Delta, ...]:
    """Return the figures that changed, counters first; () if the profiles are of different chips or sources."""
    if (before.chip, before.source) != (after.chip, after.source):
        return ()
    pairs: list[Delta] = []
    for name, title in SHOWN.items():
        exact = figures.counter_class(after.details, name) == "exact"
        pairs.append(Delta(name, title, before.counters.get(name, 0.0), after.counters.get(name, 0.0), exact))
    for engine_name in sorted({*before.engines_us, *after.engines_us}):
        old, new = before.engines_us.get(engine_name, 0.0), after.engines_us.get(engine_name, 0.0)
        pairs.append(Delta(f"engine {engine_name}", title_of(f"engine {engine_name}"), old, new, False))
    return tuple(one for one in pairs if abs(one.after - one.before) > LEAST * max(abs(one.before), 1e-9))


def title_of(name: str) -> str:
    """Return the title under which people see a figure."""
    return SHOWN.get(name) or f"{name.removeprefix('engine ')} busy"


def new_notes(before: Profile | None, after: Profile) -> Sequence[str]:
    """Return the warnings that ``after`` has and ``before`` does not, such as a spill with its line."""
    known = set(before.notes) if before else set()
    return [note for note in after.notes if note not in known]


def size(value: float) -> str:
    """Return a number of bytes as text: ``16.0 MB``."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """Return a count as text: ``65,536``."""
    return f"{value:,.0f}"


def engine(value: float) -> str:
    """Return a time in microseconds as text."""
    return figures.duration(value)
