"""Divide a recorded PyTorch module into regions. Each region is a separate program, for which a kernel can be written.

A region has a group of matrix products and the calls around them. A group is the products that read the same value, or
the products of an attention. Between two groups, the module is cut where the fewest bytes pass from one region to the
next.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from acceld.lowering.aten.program import Argument, Array, Call, Input, Named, Program
from acceld.lowering.aten.reference import needed_values

PRODUCTS = frozenset(
    "linear mm bmm addmm baddbmm matmul mv einsum scaled_dot_product_attention convolution conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d".split()
)
"""Operators that multiply matrices, convolutions included."""
_VIEWS = frozenset(
    "getitem view reshape _unsafe_view unflatten flatten squeeze unsqueeze permute transpose t expand slice select split "
    "split_with_sizes chunk unbind alias clone contiguous detach".split()
)
"""Operators whose result is a view of an operand, so that they move no bytes."""
_TABLES = frozenset({"embedding", "index", "index_select"})
"""Operators that read only some rows of their first operand."""


@dataclass(frozen=True, slots=True)
class Part:
    """A region of a module: one program, and every place in the module where the program runs."""

    name: str
    program: Program
    places: tuple[tuple[Program, tuple[str, ...]], ...]
    """For each run of the region: the program with the names of the module's values, and the names of the calls."""

    @property
    def count(self) -> int:
        """Return how often the module runs the region."""
        return len(self.places)

    @property
    def signature(self) -> str:
        """Return a digest of the region's program. Regions that differ only in names have equal digests."""
        return signature(self.program)

    @property
    def product_dtype(self) -> str:
        """Return the dtype of the region's matrix products; without products, the dtype of its inputs."""
        found = [call.results[0].dtype for call in self.program.calls if call.operator in PRODUCTS]
        floats = [one.array.dtype for one in self.program.inputs if "float" in one.array.dtype]
        return next(iter([*found, *floats]), "float32")

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of the region's inputs that the region does not read, because it reads only some rows of a
        table.
        """
        arrays = {one.name: one.array for one in self.program.inputs}
        readers: dict[str, list[Call]] = {}
        for call in self.program.calls:
            for name in call.reads:
                readers.setdefault(name, []).append(call)
        left = 0
        for name, array in arrays.items():
            calls = readers.get(name, [])
            if calls and all(one.operator in _TABLES and one.args[0] == Named(name) for one in calls):
                left += max(0, array_bytes(array) - sum(array_bytes(one.results[0]) for one in calls))
        return left


def divided(program: Program) -> list[Part]:
    """Return the regions of a program, in the order of their first run."""
    return _Division(program).parts()


def signature(program: Program) -> str:
    """Return a digest of a program. Programs that differ only in names have equal digests."""
    names: dict[str, str] = {}
    for name in [
        *(i.name for i in program.inputs),
        *(c.name for c in program.constants),
        *(c.name for c in program.calls),
    ]:
        names[name] = f"v{len(names)}"

    def plain(one: Argument) -> object:
        if isinstance(one, Named):
            return (names[one.of],)
        return [plain(part) for part in one] if isinstance(one, list) else one

    told = (
        [(one.array, one.role == "argument", one.variance) for one in program.inputs],
        [(one.array, one.values, one.words) for one in program.constants],
        [
            (
                one.operator,
                one.overload,
                [plain(a) for a in one.args],
                sorted((k, plain(v)) for k, v in one.named.items()),
                one.results,
            )
            for one in program.calls
        ],
        [names[one] for one in program.outputs],
    )
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class _Division:
    """The division of a program's calls into regions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        needed = needed_values(program)
        calls = [_filling(one) for one in program.calls if one.name in needed]
        self.arrays = {one.name: one.array for one in program.inputs}
        self.arrays |= {one.name: one.array for one in program.constants}
        self.free = {one.name for one in program.constants}
        """Names of values that depend on no argument and no weight. Each region that reads such a value computes it
        again.
        """
        self.calls: list[Call] = []
        taken = {one.name: [other for other in calls if _takes(other, one)] for one in calls if len(one.results) > 1}
        for call in calls:
            if call.operator == "getitem":
                continue
            self.calls += [call, *taken.get(call.name, ())]
        for call in self.calls:
            if call.operator == "getitem":
                source, place = call.args
                assert isinstance(source, Named) and isinstance(place, int)
                results = next(one for one in calls if one.name == source.of).results
                self.arrays[call.name] = results[place]
            else:
                self.arrays[call.name] = call.results[0] if call.results else Array((), "float32")
            if all(name in self.free for name in call.reads):
                self.free.add(call.name)
        self.held = {one.name for one in program.inputs if one.role != "argument"}
        self.by_name = {one.name: one for one in self.calls}
        self.calls = [one for one in self.calls if one.name not in self.free]

    def parts(self) -> list[Part]:
        """Return the regions of the program. Equal regions are one Part with several places."""
        bounds = [0, *self._cuts(), len(self.calls)]
        found: dict[str, list[tuple[Program, tuple[str, ...]]]] = {}
        for start, end in itertools.pairwise(bounds):
            if end > start:
                part = self._program(start, end)
                found.setdefault(signature(part), []).append((part, tuple(c.name for c in self.calls[start:end])))
        names: set[str] = set()
        made = []
        for places in found.values():
            name = base = _name(places[0][0])
            number = 1
            while name in names:
                number += 1
                name = f"{base}_{number}"
            names.add(name)
            made.append(Part(name, places[0][0], tuple(places)))
        return made

    # where to cut

    def _cuts(self) -> list[int]:
        """Return the numbers of the calls at which a new region begins. The first call is left out."""
        cuts: list[int] = []
        for start, end in self._layers():
            if start:
                cuts.append(start)
            groups = self._groups(start, end)
            for before, after in itertools.pairwise(groups):
                between = [at for at in range(before[-1] + 1, after[0] + 1) if self.calls[at].operator != "getitem"]
                # The last of equally good places is taken, so that work after a product stays in the product's region.
                cuts.append(min(between, key=lambda at: (self._crossing(at), -at)))
        return cuts

    def _layers(self) -> list[tuple[int, int]]:
        """Return ranges (first, end) of calls. Each range is one layer of the module, or calls between layers."""
        keys = [_layer(call.module) for call in self.calls]
        products = [key for key, call in zip(keys, self.calls, strict=True) if call.operator in PRODUCTS]
        keys = [key if products.count(key) > 1 else "" for key in keys]
        keys = _filled(keys)
        starts = [at for at in range(len(keys)) if not at or keys[at] != keys[at - 1]]
        starts = [at for at in starts if self.calls[at].operator != "getitem"]
        found: list[tuple[int, int]] = []
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            if all(call.operator in _VIEWS for call in self.calls[start:end]) and found:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def _groups(self, start: int, end: int) -> list[list[int]]:
        """Return groups of matrix products, by their numbers, in the calls from ``start`` to before ``end``.

        Each group becomes one region.
        """
        groups: list[list[int]] = []
        reach: dict[str, set[int]] = {}
        for at in range(start, end):
            call = self.calls[at]
            behind = set().union(*(reach.get(name, set()) for name in call.reads))
            if call.operator in PRODUCTS:
                if not groups or not self._joins(call, behind, groups[-1]):
                    groups.append([])
                groups[-1].append(at)
                behind = behind | {at}
            reach[call.name] = behind
        return groups

    def _joins(self, call: Call, behind: set[int], group: Sequence[int]) -> bool:
        """Tell whether the matrix product ``call`` belongs to the region of the products in ``group``.

        There are two cases. In the first case, the call reads the same value as a product of the group, and both are in
        the same member of a list of modules. In the second case, the call depends on the results of products of the
        group, and none of these products has weights, as in attention. ``behind`` has the numbers of the products that
        the call depends on.
        """
        inside = behind & set(group)
        if inside:
            return not self._weighted(call) and not any(self._weighted(self.calls[at]) for at in inside)
        if {_numbered(self.calls[at].module) for at in group} != {_numbered(call.module)}:
            return False
        own = {self._source(name) for name in call.reads if name not in self.held}
        return any(own & {self._source(n) for n in self.calls[at].reads if n not in self.held} for at in group)

    def _weighted(self, call: Call) -> bool:
        """Tell whether a call reads a weight, or a view of a weight."""
        return any(self._source(name) in self.held for name in call.reads)

    def _source(self, name: str) -> str:
        """Return the name of the value of which ``name`` is a view, through any number of views."""
        while name in self.by_name and self.by_name[name].operator in _VIEWS:
            name = self.by_name[name].reads[0]
        return name

    def _crossing(self, at: int) -> int:
        """Return the bytes of all values that are computed before call number ``at`` and read by this or a later call."""
        before = {call.name for call in self.calls[:at]}
        read = {name for call in self.calls[at:] for name in call.reads} | set(self.program.outputs)
        return sum(array_bytes(self.arrays[name]) for name in before & read)

    # what a region is

    def _program(self, start: int, end: int) -> Program:
        """Return the calls from number ``start`` to before number ``end`` as a separate program."""
        own = self.calls[start:end]
        inside = {call.name for call in own}
        after = {name for call in self.calls[end:] for name in call.reads} | set(self.program.outputs)
        made = self._free_behind(own)
        calls = (*made, *own)
        read = dict.fromkeys(name for call in calls for name in call.reads if name not in inside)
        known = {one.name: one for one in self.program.inputs}
        inputs = []
        for name in read:
            if name in known:
                inputs.append(known[name])
            elif name not in self.free:
                inputs.append(Input(name, self.arrays[name], "argument", name, place=(name,)))
        inputs.sort(key=lambda one: one.role != "argument")
        constants = tuple(one for one in self.program.constants if one.name in read)
        outputs = tuple(call.name for call in own if call.name in after and len(call.results) <= 1)
        results = 0 if len(outputs) == 1 else tuple(range(len(outputs)))
        title = f"{_name_of(own)} of {self.program.title}"
        return Program(title, tuple(inputs), constants, calls, outputs, results=results)

    def _free_behind(self, own: Sequence[Call]) -> tuple[Call, ...]:
        """Return the calls that read no data, such as ``arange``, and whose results the calls ``own`` need, directly
        or through other calls. The calls are in the program's order.
        """
        wanted: dict[str, Call] = {}
        todo = [name for call in own for name in call.reads]
        while todo:
            name = todo.pop()
            if name in self.free and name in self.by_name and name not in wanted:
                wanted[name] = self.by_name[name]
                todo += self.by_name[name].reads
        return tuple(call for name, call in self.by_name.items() if name in wanted)


def _filling(call: Call) -> Call:
    """Return a call such as ``zeros_like`` as a call such as ``zeros``, which reads no array.

    Any other call is returned unchanged.
    """
    operator = {"zeros_like": "zeros", "ones_like": "ones", "full_like": "full"}.get(call.operator)
    return call if operator is None else replace(call, operator=operator, args=call.args[1:])


def _filled(keys: Sequence[str]) -> list[str]:
    """Return ``keys``, the layer of each call, without gaps: a call between two calls of a layer belongs to the layer."""
    found = list(keys)
    for key in {one for one in keys if one}:
        first, last = found.index(key), len(found) - 1 - found[::-1].index(key)
        if not any(one not in ("", key) for one in found[first:last]):
            found[first : last + 1] = [key] * (last + 1 - first)
    return found


def _layer(module: str) -> str:
    """Return the path of a module up to its first number: ``layers.3`` of ``layers.3.mlp.up (Linear)``.

    Return "" if the path has no number.
    """
    found = re.match(r"(?:[A-Za-z_]\w*\.)*\d+(?=[. ])", module)
    return found[0] if found else ""


def _numbered(module: str) -> str:
    """Return the path of a module up to its last number: ``layers.3.experts.1`` of ``layers.3.experts.1.up (Linear)``.

    Return "" if the path has no number.
    """
    found = re.match(r"(?:.*\.)?\d+(?=[. ])", module)
    return found[0] if found else ""


def _name(program: Program) -> str:
    """Return a name for a region, as a Python identifier."""
    return re.sub(r"\W+", "_", _name_of(program.calls)).strip("_") or "region"


def _name_of(calls: Sequence[Call]) -> str:
    """Return a name made of the names of the submodules that multiply matrices, such as ``gate_up``.

    Without such names, return the name of the last operator.
    """
    products = [call for call in calls if call.operator in PRODUCTS]
    paths = dict.fromkeys(call.module.partition(" ")[0] for call in products or calls)
    last = dict.fromkeys(re.sub(r"\.?\d+\b", "", path).rpartition(".")[2] for path in paths)
    words = [one for one in last if one]
    return "_".join(words[:3]) or (products or calls)[-1].operator.strip("_")


def _takes(call: Call, source: Call) -> bool:
    """Tell whether ``call`` selects one of the results of ``source``."""
    return call.operator == "getitem" and call.args[0] == Named(source.name)


def array_bytes(array: Array) -> int:
    """Return the number of bytes of an array."""
    width = re.search(r"\d+$", array.dtype)
    return math.prod(array.shape) * (int(width[0]) // 8 if width else 1)
