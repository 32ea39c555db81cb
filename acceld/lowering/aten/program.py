"""The operators that a module calls, as plain data: what torch.export recorded, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Array:
    """The shape of a value, and its type by numpy's name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Named:
    """An operand that is the value ``of``: an input, a constant or what a call returned."""

    of: str


Argument = Named | bool | int | float | str | list["Argument"] | None
"""An operand of a call. A type is its name; infinities are the words ``inf`` and ``-inf``."""


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the module's forward, or a parameter or buffer of the module."""

    name: str
    array: Array
    role: Literal["argument", "parameter", "buffer"]
    path: str = ""
    """Path in the module: ``layers.0.mlp.gate_proj.weight``."""

    low: float | None = None
    high: float | None = None
    """Least and greatest value, where the values are known."""

    place: tuple[str | int, ...] = ()
    """Place of an argument: the name of forward's parameter, then the places in its lists and dicts."""

    @property
    def variance(self) -> bool:
        """Return True for a variance that a norm keeps: it is never negative."""
        return self.role == "buffer" and self.path.endswith("var")


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the module: its values in order, or the words of numpy that make it."""

    name: str
    array: Array
    values: tuple[float, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator: ``linear`` for ``aten.linear.default``; ``getitem`` takes one result of several."""

    name: str
    operator: str
    args: tuple[Argument, ...]
    named: dict[str, Argument]
    results: tuple[Array, ...]
    module: str = ""
    """Path and class of the submodule that called it."""

    overload: str = "default"

    @property
    def reads(self) -> list[str]:
        """Return the names of the values that it reads, in order."""
        found: list[str] = []
        todo: list[Argument] = [*self.args, *self.named.values()]
        while todo:
            one = todo.pop(0)
            if isinstance(one, Named):
                found.append(one.of)
            elif isinstance(one, list):
                todo = [*one, *todo]
        return found


@dataclass(frozen=True, slots=True)
class Program:
    """A module's forward: inputs in order, constants, calls in order, and the names of the outputs."""

    title: str
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]
    others: tuple[tuple[str, Any], ...] = ()
    """Arguments of the forward that are no arrays, with their values; ``...`` for an array that no output depends on."""

    results: Any = 0
    """Structure of what the forward returns, with the numbers of its outputs in place of arrays: ``0``, ``(0,)``, ``{"y": 0}``. A word
    names a type that no literal makes.
    """

    training: bool = False
    """True if the module was recorded in training mode."""
