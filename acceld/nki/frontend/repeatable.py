"""Provide values for a guarded kernel's file that are the same in every process.

The order of a set of strings or objects differs between processes, and so does the memory address in a text such as
``repr(object)``. A kernel that depends on such an order or address would give different programs in different
processes, so these uses are refused. A set of strings may still be tested for membership and sorted.
"""

from __future__ import annotations

import cmath
import copy
import operator
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView
from typing import Any, Self

import numpy as np

from acceld.nki.errors import OF_SIMULATOR, LegalityError
from acceld.nki.frontend.permitted import RULE
from acceld.nki.frontend.session import caller

_ADDRESS = re.compile(r"\bat 0x[0-9a-f]", re.IGNORECASE)
"""Matches the part of an object's ``repr`` that shows its memory address."""
_MODULE = re.compile(r"<module ", re.IGNORECASE)
"""Matches the ``repr`` of a module, which may show the module's file."""
_PACKAGE = __name__.partition(".")[0]
_CLASS = re.compile(rf"<\w+ '({_PACKAGE}\.|({'|'.join(_PACKAGE[:n] for n in range(1, len(_PACKAGE) + 1))})$)")
"""Matches the ``repr`` of a class of the simulator, by which a kernel could tell the simulator from a chip's compiler; also a
``repr`` that a format such as ``%.10s`` has cut within the package's name.
"""
_NUMBERS = frozenset({int, bool, float, complex})
"""Types whose values have the same hash in every process."""
_SORTED = _NUMBERS | {str, bytes}
"""Types of values that can be sorted."""
_REDUCE = frozenset("all any max mean min prod std sum var amax amin".split())
"""Functions of numpy that compute every element of their result even if ``where=`` leaves operands out."""
_NO_ORDER = "<set without order>"
"""The text of a set whose order differs between processes."""
_MAKE_SETS = (
    "__or__ __and__ __sub__ __xor__ __ror__ __rand__ __rsub__ __rxor__ "
    "union intersection difference symmetric_difference copy"
).split()
"""Methods of sets that return a new set."""
_CHANGE_SETS = (
    "__ior__ __iand__ __isub__ __ixor__ update intersection_update difference_update symmetric_difference_update clear"
).split()
"""Methods of sets that change the set."""


def _refused(what: str, hint: str, why: str = "differs between processes") -> LegalityError:
    """Return the LegalityError that refuses ``what`` for the reason ``why``."""
    frame = caller()
    return LegalityError(f"{what} {why}", rule=RULE, line=frame.f_lineno if frame is not None else 0, hint=hint)


def shown(made: Any) -> Any:
    """Return ``made`` unchanged. Raise LegalityError if it is a string or bytes with a memory address, with the ``repr``
    of a module, with a set whose order differs between processes, or with the ``repr`` of a tile, a register, a loop's
    index or a class of the simulator.
    """
    if isinstance(made, bytes | bytearray):
        text = made.decode("latin-1")
        is_text = text.replace(OF_SIMULATOR, "").isprintable()  # numbers as bytes may hold the mark by chance
        shown(text if is_text else text.replace(OF_SIMULATOR, ""))
    if not isinstance(made, str):
        return made
    if _ADDRESS.search(made):
        raise _refused("a string that shows an object's memory address, as repr() does,", "use names that you chose")
    if _MODULE.search(made):
        raise _refused("the repr of a module", "use names that you chose", "may differ between machines")
    if _NO_ORDER in made:
        raise _refused("the order of a set in a text", "sort the set: sorted(NAME)")
    if _CLASS.search(made):
        hint = "test types with isinstance, or compare dtypes and shapes"
        raise _refused("the repr of a class of NKI", hint, "tells a kernel that it runs in the simulator")
    if OF_SIMULATOR in made:
        what = "the text of a tile, a register or a loop's index"
        raise _refused(what, "use its shape and dtype", "tells a kernel that it runs in the simulator")
    return made


def numeric(made: Any) -> Any:
    """Return ``made``, a result of numpy, unchanged. Raise LegalityError for an array or dtype of strings or
    objects.

    Numpy could turn objects into strings that show their addresses.
    """
    for one in made if isinstance(made, tuple | list) else ():
        numeric(one)
    shown(made)
    dtype = made if isinstance(made, np.dtype) else getattr(made, "dtype", None)
    if isinstance(dtype, np.dtype) and (dtype.kind in "USO" or dtype.names):
        raise _refused("an array of texts or objects", "keep them in a list")
    return made


def _all_of(types: frozenset[type], value: Any) -> bool:
    """Tell whether ``value`` is of one of the types ``types`` and not NaN. A tuple qualifies if all its members do."""
    if isinstance(value, tuple):
        return all(_all_of(types, one) for one in value)
    # NaN does not qualify, because its hash depends on its address
    is_nan = isinstance(value, float | complex) and cmath.isnan(value)
    return type(value) in types and not is_nan


def members(one: Any) -> Iterator[Any]:
    """Return an iterator over the members of a set. Their order may differ in another process."""
    return iter(plain(one))


def plain(value: Any) -> Any:
    """Return the set of Python, or the view of a dict, that a set, keys or items of a kernel's file stand for. Any other
    value is returned unchanged.
    """
    if isinstance(value, Set | FrozenSet):
        return value.plain
    return value.shown_by_python() if isinstance(value, _View) else value


class _Unordered:
    """The behavior that Set and FrozenSet share: only a set of numbers can be iterated, because its order is
    the same in each process.

    ``plain`` is the set of Python with the same members. It is made by the same operations as the set of a file without
    guard, because the order of numbers depends on how their set was made.
    """

    __slots__ = ()

    def __iter__(self: Any) -> Iterator[Any]:
        if self._has_no_order():
            raise _refused("the order of a set", "use a tuple, a list or a dict, or sort the set")
        return iter(self.plain)

    def __repr__(self: Any) -> str:
        return _NO_ORDER if self._has_no_order() else repr(self.plain)

    def __reduce__(self: Any) -> tuple[type[Any], tuple[list[Any]]]:
        return type(self), (list(self.plain),)

    def __copy__(self: Any) -> Any:
        return self.copy()

    def isdisjoint(self: Any, other: Iterable[Any]) -> bool:
        """Return True if this set and ``other`` have no member in common."""
        return bool(self.plain.isdisjoint(plain(other)))

    def _has_no_order(self: Any) -> bool:
        """Tell whether the order of the members may differ in another process."""
        return len(self.plain) > 1 and not all(_all_of(_NUMBERS, one) for one in self.plain)


class Set(_Unordered, set[Any]):
    """The ``set`` of a kernel's file. Uses that depend on the order of its members are refused."""

    __slots__ = ("plain",)

    plain: set[Any]

    def __init__(self, given: Iterable[Any] = ()) -> None:
        """Make a set of the values in ``given``."""
        self.plain = set(plain(given))
        super().__init__(self.plain)

    @classmethod
    def of(cls, made: set[Any]) -> Self:
        """Return the set that stands for ``made``, a set of Python that nothing else uses."""
        one = cls()
        one.plain = made
        set.__init__(one, made)
        return one

    def add(self, member: Any) -> None:
        """Add ``member``."""
        self.plain.add(member)
        super().add(member)

    def discard(self, member: Any) -> None:
        """Remove ``member`` if the set has it."""
        self.plain.discard(member)
        super().discard(member)

    def remove(self, member: Any) -> None:
        """Remove ``member``. Raise KeyError if the set does not have it."""
        self.plain.remove(member)
        super().remove(member)

    def pop(self) -> Any:
        """Remove and return the only member. Raise LegalityError if there are several, because Python does not
        define which one comes next.
        """
        if len(self) > 1:
            raise _refused("the member that pop removes", "take the least member with min, and discard that member")
        super().clear()
        return self.plain.pop()


class FrozenSet(_Unordered, frozenset[Any]):
    """The ``frozenset`` of a kernel's file. Uses that depend on the order of its members are refused."""

    __slots__ = ("plain",)

    plain: frozenset[Any]

    def __new__(cls, given: Iterable[Any] = ()) -> Self:
        """Make a set of the values in ``given``."""
        return cls.of(frozenset(plain(given)))

    @classmethod
    def of(cls, made: frozenset[Any]) -> Self:
        """Return the set that stands for ``made``."""
        one = super().__new__(cls, made)
        one.plain = made
        return one


def _of_its_kind(name: str) -> Callable[..., Any]:
    """Return a method that applies the method ``name`` of Python's sets, and whose result has the class of the object on
    which it is called.
    """

    def made(self: Any, *others: Any) -> Any:
        result = getattr(self.plain, name)(*map(plain, others))
        return result if result is NotImplemented else type(self).of(result)

    return made


def _in_place(name: str) -> Callable[..., Any]:
    """Return a method that applies the method ``name`` of Python's sets, which changes the set on which it is called."""

    def changed(self: Any, *others: Any) -> Any:
        result = getattr(self.plain, name)(*map(plain, others))
        set.__init__(self, self.plain)
        return self if result is self.plain else result

    return changed


for _kind in (Set, FrozenSet):
    for _name in _MAKE_SETS:
        setattr(_kind, _name, _of_its_kind(_name))
for _name in _CHANGE_SETS:
    setattr(Set, _name, _in_place(_name))


class _View:
    """The behavior that Keys and Items share: operations with sets give the results that Python's views give."""

    method = ""
    """Name of the method of a dict that returns Python's view."""

    def shown_by_python(self: Any) -> Any:
        """Return Python's own view of the dict."""
        return getattr(self._mapping, self.method)()

    def __repr__(self) -> str:
        return repr(plain(self))

    def __reversed__(self: Any) -> Iterator[Any]:
        return iter(list(self)[::-1])

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        """Return True if the view and ``other`` have no member in common."""
        return bool(plain(self).isdisjoint(plain(other)))


def _of_views(operate: Callable[[Any, Any], Any], turned: bool = False) -> Callable[..., Any]:
    """Return a method that applies ``operate`` to a view and another object, or to the other object and the view if
    ``turned``.
    """

    def made(self: Any, other: Any) -> Any:
        sides = (other, self) if turned else (self, other)
        result = operate(*map(plain, sides))
        return Set.of(result) if type(result) is set else result

    return made


for _name in ("and", "or", "sub", "xor", "le", "lt", "ge", "gt", "eq", "ne"):
    setattr(_View, f"__{_name}__", _of_views(getattr(operator, f"__{_name}__")))
for _name in ("and", "or", "sub", "xor"):
    setattr(_View, f"__r{_name}__", _of_views(getattr(operator, f"__{_name}__"), turned=True))


class Keys(_View, KeysView[Any]):
    """The keys of a dict in a kernel's file. Set operations on them return a :class:`Set`."""

    method = "keys"


class Items(_View, ItemsView[Any, Any]):
    """The items of a dict in a kernel's file. Set operations on them return a :class:`Set`."""

    method = "items"


class _Texts(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, str)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, str)

    def __call__(cls, *arguments: Any, **options: Any) -> str:
        text: str = shown(str(*arguments, **options))
        return text


class Text(str, metaclass=_Texts):
    """The ``str`` of a kernel's file. It raises LegalityError if a new string contains a memory address."""

    __slots__ = ()


def _sorted_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that also accepts a set of numbers or strings as its only iterable argument.

    ``function`` is ``sorted``, ``min`` or ``max``, whose result does not depend on the order of the set.
    """

    def called(*values: Any, **options: Any) -> Any:
        only = values[0] if len(values) == 1 and options.get("key") is None else None
        if isinstance(only, Set | FrozenSet) and all(_all_of(_SORTED, one) for one in members(only)):
            values = (list(members(only)),)
        return function(*values, **options)

    return called


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that raises LegalityError if the result contains a memory address."""

    def called(*values: Any, **options: Any) -> Any:
        return shown(function(*values, **options))

    return called


def _print(*values: Any, file: Any = None, **options: Any) -> None:
    """Print as the built-in ``print`` does. Raise LegalityError for ``file=``: a kernel could read an address
    back from the file.
    """
    if file is not None:
        raise _refused("what is printed", "print without file=")
    print(*values, **options)  # noqa: T201  # a kernel's own output


BUILTINS: dict[str, Any] = {
    "set": Set,
    "frozenset": FrozenSet,
    "str": Text,
    "print": _print,
    **{function.__name__: _sorted_first(function) for function in (sorted, min, max)},
    **{function.__name__: _checked(function) for function in (repr, ascii, format)},
}
"""Replacements of Python's built-in functions and types in a guarded file, by name."""


def type_of(value: object) -> type:
    """Return the type of ``value``; :class:`Text` for a string."""
    kind = type(value)
    return Text if kind is str else kind


def attribute(owner: Any, name: str, *default: Any) -> Any:
    """Return the attribute ``name`` of ``owner``, or the default. ``keys``, ``items`` and ``format`` are
    replaced by checked versions.
    """
    views = {"keys": Keys, "items": Items}
    if name in views and isinstance(owner, dict):
        return lambda: views[name](owner)
    if name in views and isinstance(owner, type) and issubclass(owner, dict):
        return views[name]
    found = getattr(owner, name, *default)
    return _checked(found) if name == "format" and isinstance(owner, str) else found


def called(function: Any) -> Any:
    """Return ``function`` for a guarded file to call.

    A function of numpy is wrapped. It then raises LegalityError if its result holds strings or objects, or if
    ``where=`` leaves elements of the result unset.
    """
    if function is copy.deepcopy:
        return _deepcopy
    owner = getattr(function, "__self__", None)
    home = getattr(function, "__module__", None) or ""
    if not (home.partition(".")[0] == "numpy" or isinstance(owner, np.ndarray | np.generic)):
        return function

    def checked(*values: Any, **options: Any) -> Any:
        if options.get("out") is None and "where" in options and function.__name__ not in _REDUCE:
            raise _refused("the content of elements that where= leaves unset", "pass out= beside where=")
        return numeric(function(*values, **options))

    return checked


def _deepcopy(value: Any, *memo: Any, **options: Any) -> Any:
    if memo or options:
        raise _refused("the memo of a copy", "copy without a memo")  # the keys of a memo are addresses
    return copy.deepcopy(value)
