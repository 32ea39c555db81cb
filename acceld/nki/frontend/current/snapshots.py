"""Take snapshots of the Python values around a sampled loop, to see if its iterations change any.

Equal are only values that can not change (listed here), tensors, and containers, functions, classes and objects whose
every part is equal. Anything else is never equal to anything, so a loop beside it is traced in full.
"""

from __future__ import annotations

import enum
import hashlib
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.core.launch import Kernel
from acceld.nki.frontend.core.tensor import Tensor

_VALUES = frozenset({type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)})
"""Types whose values can not change."""
_PLACES = (GetSetDescriptorType, MemberDescriptorType)
"""Attributes of a class that give access to a part of its objects."""
_CALLS = (property, staticmethod, classmethod)
_FIXED = frozenset(
    "acceld numpy ml_dtypes math cmath operator dataclasses enum typing functools itertools nki neuronxcc".split()
)
"""Packages whose modules, functions, classes and objects are not changed by a kernel."""
_HEAP_TYPE = 1 << 9
"""CPython's flag of a class whose attributes may be set."""
_PARTS = 50_000
_DEPTH = 100
Snapshot = tuple[tuple[object, ...], tuple[int, ...]]
"""Hold the values that must be equal, and the integers that may grow by the same amount in each iteration."""


def changes(snapshots: list[tuple[int, Snapshot]]) -> bool:
    """Return True if the newest of ``snapshots`` shows that iterations are not alike.

    Each was taken after the iteration with its number, which counts from 0. Positions may move by equal steps.
    """
    if len(snapshots) < 2:
        return False
    (_, (structure, start)), (place, (now, numbers)) = snapshots[0], snapshots[-1]
    if structure != now:
        return True
    steps = [b - a for a, b in zip(start, snapshots[1][1][1], strict=True)]
    apart = snapshots[1][0] - snapshots[0][0]
    grown = [a + step * (place - snapshots[0][0]) // apart for a, step in zip(start, steps, strict=True)]
    return list(numbers) != grown


def snapshot(frame: FrameType | None, variable: str, starts: Sequence[int]) -> Snapshot:
    """Return the plain Python values in reach of a loop, except ``variable``, the loop's own.

    ``starts`` has the number of buffers at the start of each iteration so far.
    """
    if frame is None:
        return (), ()
    walk = _Walk(starts)
    walk.names({**frame.f_locals, variable: ...})
    walk.module(frame.f_globals)
    return tuple(walk.seen), tuple(walk.numbers)


class _Walk:
    """Visits values once each. ``seen`` describes them in order; ``numbers`` are the positions of tensors.

    A tensor that the loop itself made is described by the number of iterations since then.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self.seen: list[object] = []
        self.numbers: list[int] = []
        self._known: dict[int, int] = {}
        self._kept: list[object] = []
        self._starts = starts
        self._depth = 0

    def module(self, names: dict[str, Any]) -> None:
        """Visit the global names of a kernel's module."""
        if not self._again(names):
            self.names({name: value for name, value in names.items() if name != "__builtins__"})

    def names(self, values: Mapping[Any, Any]) -> None:
        """Visit the values of a mapping in order."""
        self.seen.append(len(values))
        for name, value in values.items():
            self.value(name)
            self.value(value)

    def _again(self, value: object) -> bool:
        """Return True if a value was visited before. Otherwise keep it, so that no other gets its identity."""
        before = self._known.setdefault(id(value), len(self._known))
        if before < len(self._known) - 1 or (self._kept and self._kept[-1] is value):
            self.seen.append(("again", before))
            return True
        self._kept.append(value)
        return False

    def _unlike(self) -> None:
        """Note a value that is equal to nothing."""
        self.seen.append(object())

    def value(self, value: object) -> None:
        """Visit one value and its parts."""
        kind = type(value)
        if kind in _VALUES:
            self.seen.append((kind, repr(value) if kind in (float, complex, slice) else value))
            return
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, Expr):
            self.seen.append("index")
            self.numbers.append(value.base.const)
            self.seen.append(value.base.terms)
        elif isinstance(value, np.generic):
            self.seen.append((kind.__name__, repr(value)))
        elif len(self.seen) > _PARTS or self._depth > _DEPTH:
            self._unlike()
        elif not self._again(value):
            self._depth += 1
            self.seen.append(kind)
            self._parts(value, kind)
            self._depth -= 1

    def _tensor(self, tensor: Tensor) -> None:
        access = tensor.access
        made = bisect_right(self._starts, access.buffer) - 1
        first = self._starts[made] if made >= 0 else 0
        age = len(self._starts) - made if made >= 0 else None
        self.seen.append((type(tensor), age, access.buffer - first, access.dims, access.dtype, len(access.indirect)))
        self.seen.append(tuple(start.terms for start in access.start))
        self.numbers += [start.const for start in access.start]

    def _all(self, values: Iterable[object]) -> None:
        listed = list(values)
        self.seen.append(len(listed))
        for one in listed:
            self.value(one)

    def _parts(self, value: Any, kind: type) -> None:
        if kind in (list, tuple, deque):
            self._all(value)
        elif kind in (set, frozenset):
            self._all(sorted(value, key=repr) if all(type(one) in _VALUES for one in value) else [object()])
        elif kind in (dict, MappingProxyType):
            self.names(value)
        elif kind is bytearray:
            self.seen.append(bytes(value))
        elif kind is np.ndarray:
            self._array(value)
        elif kind is FunctionType:
            self._function(value)
        elif kind is MethodType:
            self._all((value.__self__, value.__func__))
        elif kind is BuiltinFunctionType:
            if value.__self__ is not None and not isinstance(value.__self__, ModuleType):
                self.value(value.__self__)
        elif kind is partial:
            self._all((value.func, value.args, value.keywords))
        elif kind in _CALLS:
            self._all((value.fget, value.fset) if kind is property else (value.__func__,))
        elif kind is Kernel:
            self.value(value.func)
        elif kind is CellType:
            self._all([value.cell_contents] if _filled(value) else [])
        elif isinstance(value, ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif kind in _PLACES or kind is np.dtype or (_is_fixed(kind) and not isinstance(value, Iterator)):
            return
        else:
            self._object(value, kind)

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        if value.dtype.hasobject:
            self._unlike()
        else:
            digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
            self.seen.append((value.dtype.str, value.shape, digest))

    def _function(self, value: FunctionType) -> None:
        if value.__module__ and _root(value.__module__) in _FIXED and _is_named(value, value.__qualname__):
            return
        self.seen.append(id(value.__code__))
        self._kept.append(value.__code__)
        self._all((value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value)))
        self.module(value.__globals__)

    def _module(self, value: ModuleType) -> None:
        name = value.__name__
        if _root(name) not in _FIXED:
            self._unlike() if _is_library(value) else self.module(vars(value))
        elif name == "numpy" and "numpy.random" in sys.modules:
            self.seen.append(repr(np.random.get_state(legacy=False)))  # what a kernel may count with

    def _class(self, value: type) -> None:
        if value.__flags__ & _HEAP_TYPE and not _is_fixed(value):
            self._all(value.__bases__)
            self.names(vars(value))

    def _object(self, value: Any, kind: type) -> None:
        if isinstance(value, tuple):  # of a named kind
            self._all(tuple.__iter__(value))
        elif isinstance(value, enum.Enum):
            self.seen.append(value.name)
        elif any(base.__flags__ & _HEAP_TYPE == 0 for base in kind.__mro__[:-1]):
            self._unlike()  # another kind of list, dict or iterator
            return
        self._all((kind, getattr(value, "__dict__", None)))
        for base in kind.__mro__:
            for name, place in vars(base).items():
                if type(place) is MemberDescriptorType:
                    self.value(name)
                    try:
                        held = [place.__get__(value)]
                    except AttributeError:  # nothing is in the slot, also where a class below has the name too
                        held = []
                    self._all(held)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_named(value: object, name: str) -> bool:
    """Return True if a value is what its module has under its name, so that a kernel did not make it."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None) if part != "<locals>" else None
    return found is value


def _is_fixed(kind: type) -> bool:
    if not kind.__flags__ & _HEAP_TYPE:
        return _root(kind.__module__) in _FIXED
    return _root(kind.__module__) in _FIXED and _is_named(kind, kind.__qualname__)


def _is_library(module: ModuleType) -> bool:
    return _root(module.__name__) in sys.stdlib_module_names


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is assigned later
        return False
