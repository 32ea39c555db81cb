"""Represent the operators that a PyTorch module calls as plain data that can be used without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Array:
    """The shape of an array, and numpy's name of its dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Named:
    """An operand that is the value named ``of``: an input, a constant or the result of a call."""

    of: str


Argument = Named | bool | int | float | str | list["Argument"] | None
"""An operand of a call. A dtype is given by its name; infinities are the texts ``inf`` and ``-inf``."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a module: an argument of its ``forward``, or a parameter or buffer of the module."""

    name: str
    array: Array
    role: Literal["argument", "parameter", "buffer"]
    path: str = ""
    """Path of a parameter or buffer in the module, such as ``layers.0.mlp.gate_proj.weight``."""

    low: float | None = None
    high: float | None = None
    """Greatest value of the array. ``low`` is its least value. None means that the range is not known."""

    place: tuple[str | int, ...] = ()
    """Place of an argument: the name of the parameter of ``forward``, then the indices and keys that lead to the array.

    The indices and keys are those of lists and dicts that contain the array.
    """

    ordered: bool = False
    """True if an operator expects that the values along the last axis are sorted."""

    @property
    def variance(self) -> bool:
        """Tell whether the input is the running variance of a norm, whose values are never negative."""
        return self.role == "buffer" and self.path.endswith("var")


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the module: its values in order, or ``words``, a numpy expression for it."""

    name: str
    array: Array
    values: tuple[float, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator, such as ``linear`` for ``aten.linear.default``.

    The operator ``getitem`` selects one of the results of another call.
    """

    name: str
    operator: str
    args: tuple[Argument, ...]
    named: dict[str, Argument]
    results: tuple[Array, ...]
    module: str = ""
    """Path and class of the submodule in which the call stands."""

    overload: str = "default"
    line: str = field(default="", compare=False)
    """FILE:LINE of the module's author that calls the operator; empty if nothing tells."""

    @property
    def reads(self) -> list[str]:
        """Return the names of the values that the call reads, in order."""
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
    """A record of the ``forward`` of a module: inputs, constants and calls in order, and the names of the outputs."""

    title: str
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]
    others: tuple[tuple[str, Any], ...] = ()
    """Arguments of ``forward`` that are not arrays, with their values.

    ``...`` stands for an array on which no output depends, and for an array in a list or dict.
    """

    results: Any = 0
    """The structure that ``forward`` returns, with the number of an output in place of each array.

    Examples are ``0``, ``(0,)`` and ``{"y": 0}``. If the structure can not be written as a Python literal, the name of the
    result's type stands here instead.
    """

    training: bool = False
    """True if the module was recorded in training mode."""
