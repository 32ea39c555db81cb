"""What a rewrite rule is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from acceld.errors import AcceldError
from acceld.model import Profile

Source = Any
"""A kernel's source as the rules of its API read it: a ``KernelModule`` for NKI, a ``TritonModule`` for Triton, a
``CModule`` for C."""


class RuleRefused(AcceldError):
    """A rule's precondition does not hold; the message says which, and where."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of carrying a site's plan out: an attempt. ``parameters`` are JSON-able."""

    name: str
    parameters: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a kernel where a rule applies."""

    rule: str
    line: int
    precondition: str
    """What was proven, in a sentence."""
    plan: str
    """What will be done and why, in the words a planner would use."""
    variants: tuple[Variant, ...]
    benefit: float = 1.0
    """Expected effect for ranking: a rough share of the latency, 0 to 1."""
    gain_percent: tuple[float, float] = (0.0, 10.0)
    """Expected effect on the latency, as a range shown to people."""
    key: str = ""
    """Tells sites of one rule on one line apart."""


class Rule(Protocol):
    """A source-to-source rewrite with a hardware reason. Rules know kernels, never workloads."""

    name: str
    reason: str
    """The documented behavior of the hardware behind it."""
    source: str
    """Where that is documented."""
    apis: frozenset[str]
    change_class: str
    """loop_order, tile_width, fusion, engine, spill, dma or mixed."""

    def sites(self, kernel: Source, profile: Profile | None) -> Sequence[Site]:
        """Where the rule applies in ``kernel``, preconditions proven; best first."""
        ...

    def apply(self, kernel: Source, site: Site, variant: Variant) -> str:
        """The kernel's new source. Raises RuleRefused with the reason."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """A rule that can also name places that look right and where it refuses: what a person may want to know."""

    def refusals(self, kernel: Source) -> Sequence[Site]:
        """Sites whose ``apply`` raises RuleRefused; the precondition says why."""
        ...
