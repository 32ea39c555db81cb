"""Find out whether the iterations of a sampled loop change Python values, by comparing snapshots of the values after
iterations.

Four kinds of values can be equal: immutable values of the types listed here, tensors, objects with parts that are all
equal (containers, functions, classes and their instances), and objects of libraries, which are equal only to
themselves, and only while the attributes that a kernel gave them are equal too. Any other value counts as changed, so a
loop that can reach it is traced in full.
"""

from __future__ import annotations

import abc
import ctypes
import enum
import functools
import hashlib
import pickle
import sys
import typing
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    FrameType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, Optional, TypeVar

import numpy as np

from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.core.launch import Kernel
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.repeatable import FrozenSet, Set, members, plain


def _root(name: str) -> str:
    """Return the top-level package of a module's name."""
    return name.partition(".")[0]


_VALUES = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
"""Types of immutable values."""
_SINGLE = frozenset({type(None), bool, type(...), type(NotImplemented)})
"""Types that have a single object for each value, so that values can be compared by identity."""
_CACHE = type(functools.cache(len))
_STEADY = (np.ufunc, type(np.s_), type(np.sum), type(Optional), TypeVar)
"""Classes of libraries whose objects a kernel never changes."""
_LIMITS = (np.finfo, np.iinfo)
"""Classes whose objects are fully determined by a dtype."""
_PLACES = (GetSetDescriptorType, MemberDescriptorType)
"""Types of the class attributes through which Python reads a slot or another part of an object."""
_CALLS = (property, staticmethod, classmethod)
_OF_CLASSES = {
    FunctionType,
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    ClassMethodDescriptorType,
}
_OF_CLASSES |= {*_PLACES, *_CALLS}
"""Types of the attributes with which classes of libraries describe their objects."""
_OF_API = frozenset("acceld ml_dtypes nki neuronxcc".split())
"""Packages whose objects a kernel never changes, unless they are dataclasses."""
_FIXED = _OF_API | frozenset("numpy math cmath operator dataclasses enum typing functools itertools".split())
"""Packages whose modules, functions and classes a kernel never changes."""
_WITHOUT_STATE = _FIXED | frozenset("builtins _operator _functools _collections".split())
"""Packages whose functions in C keep nothing from one call to the next."""
_WRAPPING = frozenset({"acceld.nki.frontend.guarded", "acceld.nki.frontend.repeatable"})
"""Modules whose functions may hold an object of the kernel, such as the array whose method they call, in a closure."""
_HEAP_TYPE = 1 << 9
"""CPython's flag of a class whose attributes can be assigned."""
_AT_FIRST = {name: dict(vars(one)) for name, one in sys.modules.items() if _root(name) in _FIXED - _OF_API}
"""Attributes of the modules of libraries, by module name, as they were before any kernel could change them. The API's own
modules are missing, because a kernel can not change them.
"""
_HELD_AT_FIRST = {
    name: [
        (one, tuple(one.__dict__), tuple(one.__dict__.values()))
        for one in {id(one): one for one in held.values()}.values()
        if hasattr(one, "__dict__")
        and not isinstance(one, ModuleType)
        and getattr(one, "__flags__", _HEAP_TYPE) & _HEAP_TYPE
    ]
    for name, held in _AT_FIRST.items()
}
"""Names and values of the attributes that classes, functions and other objects of those modules had then, by module."""
_OF_CLASS_AT_FIRST = {
    id(one): dict(zip(names, held, strict=True))
    for objects in _HELD_AT_FIRST.values()
    for one, names, held in objects
    if isinstance(one, type)
}
"""Attributes of those classes, by ``id()``."""
_POINTER = object.__basicsize__ // 2
"""Bytes that a pointer, such as the one to an attribute's value, takes in the memory of an object."""
_PARTS = 50_000
_DEPTH = 100
Snapshot = tuple[tuple[object, ...], tuple[int, ...]]
"""A snapshot of Python values: those that must stay equal, and the integers that may grow by the same amount in each
iteration.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Itself:
    """An object that equals only itself in a snapshot. The object is kept alive, so that no later object gets the same
    identity.
    """

    of: object

    def __eq__(self, other: object) -> bool:
        return type(other) is _Itself and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def changes(snapshots: list[tuple[int, Snapshot]]) -> bool:
    """Tell whether the newest snapshot shows that an iteration changed a value.

    Each snapshot comes with the number of the iteration after which it was taken. Integers may grow by equal
    steps.
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


def snapshot(
    frame: FrameType | None, variable: str, starts: Sequence[int], dead: Collection[str] = frozenset()
) -> Snapshot:
    """Return a snapshot of the Python values that code in ``frame`` can reach, except the loop's own variable
    ``variable`` and the variables ``dead``, whose values decide nothing.

    ``starts`` has, for each iteration so far, the number of buffers at its start.
    """
    if frame is None:
        return (), ()
    walk = _Walk(starts)
    seen = {name: one for name, one in frame.f_locals.items() if name not in dead and name != variable}
    walk.variables({**seen, variable: ...})
    walk.module(frame.f_globals)
    walk.seen += _made_types()
    walk.seen.append(abc.get_cache_token())  # grows when a class is registered at any abstract class
    if sys.exc_info()[1] is not None:
        walk.unlike()  # the code can reach the exception that is being handled, and change it
    return tuple(walk.seen), tuple(walk.numbers)


class _Walk:
    """Visit each reachable value once. ``seen`` gets a description of each value, ``numbers`` the positions of tensors.

    A tensor that an iteration of the loop declared is described by the number of iterations since then, not by its
    buffer.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self.seen: list[object] = []
        self.numbers: list[int] = []
        self._known: dict[int, int] = {}
        self._kept: list[object] = []
        self._starts = starts
        self._depth = 0
        self._fixed: dict[type, bool] = {}
        """Results of :func:`_is_fixed`, by class."""
        self._sealed: dict[type, bool] = {}
        """Results of :func:`_hides_parts`, by class."""

    def variables(self, values: Mapping[str, Any]) -> None:
        """Record the names of a function's variables, and visit their values. The names need no visit, because the
        function's code can not change.
        """
        self.seen.append(tuple(values))
        for value in values.values():
            self.value(value)

    def module(self, names: dict[str, Any]) -> None:
        """Visit the global names of the kernel's module."""
        if not self._again(names):
            self.names({name: value for name, value in names.items() if name != "__builtins__"})

    def names(self, values: Mapping[Any, Any]) -> None:
        """Visit the keys and values of a mapping in order."""
        names = tuple(values)
        if all(type(name) is str for name in names):
            self.seen.append(names)
        else:
            self._all(names)
        for value in values.values():
            self.value(value)

    def _again(self, value: object) -> bool:
        """Tell whether ``value`` was visited before. A value that was not is kept alive, so that no new object gets the
        same identity.
        """
        count = len(self._known)
        before = self._known.setdefault(id(value), count)
        if before < count:
            self.seen.append(("again", before))
            return True
        self._kept.append(value)
        return False

    def _is_fixed(self, kind: type) -> bool:
        """Tell whether a kernel can not change objects of the class ``kind``."""
        known = self._fixed.get(kind)
        if known is None:
            known = self._fixed[kind] = _is_fixed(kind)
        return known

    def _hides(self, kind: type) -> bool:
        """Tell whether objects of the class ``kind`` may hold values that are not visible as attributes."""
        known = self._sealed.get(kind)
        if known is None:
            known = self._sealed[kind] = _hides_parts(kind)
        return known

    def unlike(self) -> None:
        """Record an object that equals no other, so that this snapshot differs from every other snapshot."""
        self.seen.append(object())

    def value(self, value: object) -> None:
        """Record a value and, recursively, everything that it holds."""
        kind = type(value)
        if kind in _SINGLE:
            self.seen.append(value)
            return
        if self._again(value):  # the identity counts too: a name may change from one value to an equal one
            return
        if kind in _VALUES:
            self.seen.append((kind, _bits(value) if kind in (float, complex) else value))
        elif isinstance(value, Tensor):
            self._tensor(value) if self._is_fixed(kind) else self.unlike()
        elif isinstance(value, Expr):
            self.seen.append("index")
            self.numbers.append(value.base.const)
            self.seen.append(value.base.terms)
        elif isinstance(value, np.generic):
            plain = kind is not np.void and self._is_fixed(kind)
            self.seen.append((kind.__name__, repr(value), _bits(value))) if plain else self.unlike()
        elif len(self.seen) > _PARTS or self._depth > _DEPTH:
            self.unlike()
        else:
            self._depth += 1
            self.seen.append(kind)
            self._parts(value, kind)
            self._depth -= 1

    def _tensor(self, tensor: Tensor) -> None:
        """Record a tensor: its buffer, relative to the iteration that declared it, its axes, its position and its name."""
        access, starts, declared = tensor.access, tensor.access.start, tensor.declared
        made = bisect_right(self._starts, access.buffer) - 1
        first = self._starts[made] if made >= 0 else 0
        age = len(self._starts) - made if made >= 0 else None
        self.seen.append((type(tensor), age, access.buffer - first, access.dims, access.dtype, len(access.indirect)))
        self.seen += [tuple([start.terms for start in starts]), declared.name, declared.dtype]
        self.numbers += [start.const for start in starts]

    def _all(self, values: Iterable[object]) -> None:
        """Visit each of ``values``, and record their number."""
        listed = list(values)
        self.seen.append(len(listed))
        for one in listed:
            self.value(one)

    def _parts(self, value: Any, kind: type) -> None:
        """Visit the parts of a container, function, class or object."""
        if kind in (list, tuple, deque):
            self._all(value)
        elif kind in (slice, range):  # compare the bounds, because ranges with different bounds can be equal
            self._all((value.start, value.stop, value.step))
        elif kind in (set, frozenset, Set, FrozenSet):
            if isinstance(value, set):
                self.seen.append(_table(plain(value)))
            self._all(members(value))
        elif kind in (dict, MappingProxyType):
            self.names(value)
        elif kind is bytearray:
            self.seen.append(bytes(value))
        elif isinstance(value, np.ndarray):
            self._array(value) if kind is np.ndarray else self.unlike()
        elif kind is FunctionType:
            self._function(value)
        elif kind is MethodType:
            self._all((value.__self__, value.__func__))
        elif kind is BuiltinFunctionType:
            if value.__self__ is None or isinstance(value.__self__, ModuleType):
                self.seen.append(_Itself(value)) if _root(value.__module__ or "") in _WITHOUT_STATE else self.unlike()
            else:  # a bound method: Python creates a new one at each access
                self.seen.append(value.__qualname__)
                self.value(value.__self__)
        elif kind is partial:
            self._all((value.func, value.args, value.keywords, vars(value)))
        elif kind is _CACHE:
            self.unlike()
        elif kind in _CALLS:
            self._all((value.fget, value.fset, value.fdel) if kind is property else (value.__func__, vars(value)))
            self.value(value.__doc__)
        elif kind is Kernel:
            self._all((value.func, vars(value)))
        elif kind in (GenericAlias, UnionType):  # types as annotations write them; they never change
            self._all((getattr(value, "__origin__", None), value.__args__))
        elif kind is CellType:
            self._all([value.cell_contents] if _filled(value) else [])
        elif isinstance(value, ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, _LIMITS):
            self.seen.append(_Itself(value.dtype))
            self.names({name: one for name, one in vars(value).items() if not name.startswith("_")})
        elif isinstance(value, np.dtype):
            self._dtype(value)
        elif isinstance(value, _STEADY):
            self._steady(value)
        elif kind in _PLACES:
            self.seen.append(_Itself(value))
        elif self._is_of_api(value, kind):
            self.seen.append(_Itself(value))
            held = getattr(value, "__dict__", {})
            self.names({name: one for name, one in held.items() if not _is_part_of_api(one)})
        else:
            self._object(value, kind)

    def _is_of_api(self, value: object, kind: type) -> bool:
        """Tell whether an object has a package in :data:`_OF_API` and can not hold a value that a kernel gave it."""
        return _root(kind.__module__) in _OF_API and self._is_fixed(kind) and not is_dataclass(value)

    def _steady(self, value: object) -> None:
        """Record an object of a library, which equals only itself, and visit the attributes that a kernel may have set."""
        self.seen.append(_Itself(value))
        given = getattr(value, "__dict__", None)
        if given:
            self.names({name: one for name, one in given.items() if not name.startswith("__")})

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        """Record the content of a numpy array. An array of objects is recorded as equal to no other value."""
        if value.dtype.hasobject:
            self.unlike()
        else:
            digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
            self._dtype(value.dtype)
            self.seen.append((value.shape, value.strides, value.flags.num, digest))
            if isinstance(value.base, np.ndarray):
                self.seen.append(value.ctypes.data - value.base.ctypes.data)
            self.value(value.base)

    def _dtype(self, value: np.dtype[Any]) -> None:
        """Record a dtype. A dtype that may have metadata, which a kernel can change, is recorded as equal to no other
        value.
        """
        plain = value.metadata is None and value.fields is None and value.subdtype is None
        self.seen.append(repr(value)) if plain else self.unlike()

    def _function(self, value: FunctionType) -> None:
        """Visit what a Python function can reach: its closure, default arguments, attributes and global names."""
        # a function of a library, also one of the API, which may have a closure that no kernel changes
        home = str(value.__globals__.get("__name__"))
        library = _root(home) in _FIXED and vars(sys.modules.get(home, object)) is value.__globals__
        if library and (_root(home) in _OF_API or _is_named(value, value.__qualname__)):
            self._steady(value)
            if home in _WRAPPING:
                self.value(value.__closure__)
            return
        self.seen.append(id(value.__code__))
        self._kept.append(value.__code__)
        self._all((value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value)))
        self._all((value.__name__, value.__qualname__, value.__doc__, value.__annotations__))
        self.module(value.__globals__)

    def _module(self, value: ModuleType) -> None:
        """Visit the global names of a module that a kernel can change."""
        name = value.__name__
        self.seen.append(_Itself(value))
        if _root(name) not in _FIXED:
            self.unlike() if _is_library(value) else self.module(vars(value))
            return
        if name in _AT_FIRST:
            before = _AT_FIRST[name]
            changed = {key: one for key, one in vars(value).items() if before.get(key, value) is not one}
            self.names({key: one for key, one in changed.items() if not isinstance(one, ModuleType)})  # loaded later
            for one, names, held in _HELD_AT_FIRST[name]:
                now = one.__dict__
                if len(now) != len(held) or not (all(map(is_, now, names)) and all(map(is_, now.values(), held))):
                    self.value(one)
        if name == "numpy" and "numpy.random" in sys.modules:
            # numpy's random state counts as a value, because a kernel could use it to count iterations
            self.seen.append(pickle.dumps(np.random.get_state(legacy=False)))

    def _class(self, value: type) -> None:
        """Visit the bases and attributes of a class that a kernel can change."""
        self.seen.append(_Itself(value))
        if not value.__flags__ & _HEAP_TYPE:
            return
        if self._is_fixed(value):
            before = _OF_CLASS_AT_FIRST.get(id(value))
            if before is None:
                self.names({name: one for name, one in vars(value).items() if type(one) not in _OF_CLASSES})
            else:
                self.names({name: one for name, one in vars(value).items() if before.get(name, value) is not one})
        else:
            self._all((*value.__bases__, value.__name__, value.__qualname__))
            self.names(vars(value))

    def _object(self, value: Any, kind: type) -> None:
        """Visit the attributes of an object."""
        if isinstance(value, tuple):  # a named tuple
            self._all(tuple.__iter__(value))
        elif isinstance(value, enum.Enum):
            self.seen.append(value.name)
        elif self._hides(kind):
            self.unlike()
            return
        self._all((kind, getattr(value, "__dict__", None)))
        for base in kind.__mro__:
            for name, place in vars(base).items():
                if type(place) is MemberDescriptorType:
                    self.value(name)
                    try:
                        held = [place.__get__(value)]
                    except AttributeError:  # the slot has no value
                        held = []
                    self._all(held)


def _made_types() -> list[int]:
    """Return how often each cache of ``typing`` made a type. A kernel could count iterations by the types that a cache
    has dropped, because an equal type is then another object.
    """
    clearing: list[Any] = getattr(typing, "_cleanups", [])
    return [one.__self__.cache_info().misses for one in clearing]


def _table(value: set[Any]) -> tuple[object, ...]:
    """Return the state of a set beside its members: the hashes in its table, with those of members that were removed,
    and the place at which ``pop`` looks next.

    Source: CPython's ``PySetObject``.
    """
    after, word = id(value) + object.__basicsize__, ctypes.c_ssize_t
    fill, used, mask, table, _, finger = (word * 6).from_address(after)
    entries = (word * (2 * (mask + 1))).from_address(table)  # key and hash of each entry
    return fill, used, finger, entries[1::2]


def _bits(number: object) -> bytes:
    """Return the bytes of a number of Python or numpy, because not all numbers whose text is ``nan`` have the same bits."""
    return np.asarray(number).tobytes()


def _is_named(value: object, name: str) -> bool:
    """Tell whether ``value`` is what its own name refers to in its module, and did so before any kernel could change the
    module. A kernel can not have made such a value.
    """
    home = getattr(value, "__module__", None) or ""
    first, *parts = name.split(".")
    found: Any = _AT_FIRST[home].get(first) if home in _AT_FIRST else getattr(sys.modules.get(home), first, None)
    for part in parts:
        found = getattr(found, part, None) if part != "<locals>" else None
    return found is value


def _is_fixed(kind: type) -> bool:
    """Tell whether a kernel can not change objects of the class ``kind``."""
    if not kind.__flags__ & _HEAP_TYPE:
        return _root(kind.__module__) in _FIXED
    return _root(kind.__module__) in _FIXED and _is_named(kind, kind.__qualname__)


def _hides_parts(kind: type) -> bool:
    """Tell whether objects of the class ``kind`` have more memory than its attributes account for.

    Examples are containers, iterators, and classes that are written in C, such as ``operator.itemgetter``.
    """
    seen = object.__basicsize__ + _POINTER * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    for base in kind.__mro__:
        seen += _POINTER * sum(type(place) is MemberDescriptorType for place in vars(base).values())
    return kind.__basicsize__ > seen or kind.__itemsize__ > 0


def _is_part_of_api(value: object) -> bool:
    """Tell whether ``value`` is an object of the API, or a method of one, with which the API itself works."""
    owner = value.__self__ if isinstance(value, MethodType) else value
    home = value.__module__ if isinstance(value, FunctionType) else type(owner).__module__
    return _root(home or "") in _OF_API


def _is_library(module: ModuleType) -> bool:
    """Return True if ``module`` belongs to Python's standard library."""
    return _root(module.__name__) in sys.stdlib_module_names


def _filled(cell: CellType) -> bool:
    """Tell whether a closure's cell has a value."""
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the variable has no value yet
        return False
