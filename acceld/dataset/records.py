"""Define the records of a finished program: its kernels, the kernels that failed, and its slow-fast pairs."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.model import Evaluation


@dataclass(frozen=True, slots=True)
class Order:
    """The choices of a person who makes a data set. The same order gives the same bytes with the same version of
    acceld."""

    programs: int
    pairs: int
    seed: int
    api: str
    chip: str


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel of a program, with its simulated latency. Its outputs were correct on data."""

    text: str
    root: int
    """Position, among the program's lowered kernels, of the kernel from which rules made this kernel. 0 is the kernel
    that computes the program in the largest pieces.
    """
    steps: tuple[str, ...]
    """The rewrites from the lowered kernel ``root`` to this kernel; () for a lowered kernel."""
    rules: tuple[str, ...]
    evaluation: Evaluation

    def rules_since(self, other: Member) -> tuple[str, ...] | None:
        """Return the rules that made this kernel from ``other``; None if this kernel was not made from ``other`` by
        rules alone.
        """
        known = len(other.steps)
        made = self.root == other.root and len(self.steps) > known and self.steps[:known] == other.steps
        return self.rules[known:] if made else None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A kernel, or a whole program, that is left out of the data set, with the reason."""

    status: str
    """A status of an evaluation; ``not_lowered`` or ``no_reference`` for a program without any kernel."""
    message: str
    text: str = ""
    """Text of a kernel with wrong results, which is a defect of acceld; empty for any other reason."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A slow and a fast kernel of a program, by their positions among its members."""

    slow: int
    fast: int


@dataclass(frozen=True, slots=True)
class Program:
    """A finished program: its kernels and their pairs. A program without members has failed, for the reason in the
    first entry of ``rejected``.
    """

    number: int
    name: str
    family: str
    size: str
    formula_sha256: str
    reference: str
    members: tuple[Member, ...] = ()
    pairs: tuple[Pair, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def made(self) -> bool:
        """Tell whether the program is part of the data set."""
        return bool(self.members)
