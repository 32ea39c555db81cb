"""Find out which arguments a function of the kernel's own file reads, and which it writes.

For example, this function reads ``src`` and writes ``dst`` ::

    def broadcast(src, dst):
        for i in range(4):
            nisa.nc_stream_shuffle(dst=dst[32 * i : 32 * (i + 1), :], src=src[0:1, :], shuffle_mask=[0] * 32)

A call of such a function is an operation like a call of ``nisa``, so rules can move it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acceld.nki.source.launches import ON_CHIP
from acceld.nki.source.signatures import positional
from acceld.nki.source.syntax import DECLARATIONS, LOOPS, NO_TILES, bindings, called, names_in, numbers, root

_RESULTS = frozenset({"dst", "dst_idx", "reduce_res", "dst_scale"})
"""Parameters of instructions that take a tile to be written."""
_ADDS = frozenset({"nc_matmul", "nc_matmul_mx", "dma_copy", "dma_compute", "tensor_copy_predicated"})
"""Instructions that may leave elements of their destination unchanged, or add to them."""
_WITH_STATE = frozenset({"dropout", "rng", "rand2", "rand_get_state", "sendrecv", "tensor_scalar_cumulative"})
"""Instructions whose effect depends on more than their operands, such as the state of a random generator."""
_PURE = frozenset({"abs", "float", "int", "isinstance", "len", "max", "min"})
"""Python's builtin functions without side effects."""
_OTHERWISE_NAMED = frozenset({"shape", "dtype"})
"""Attributes of a tile that can be read without reading the tile's elements."""


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """The names of a function's parameters: all of them, the tiles that the function reads, and the tiles that it
    writes.
    """

    parameters: tuple[str, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    result: str = ""
    """The memory of the new tile that the function returns, ``sbuf`` or ``psum``; "" if it returns nothing."""


def own_functions(module: ast.Module, api: str) -> dict[str, OwnFunction]:
    """Return the plain functions of a file whose reads and writes are all known, as a dict by name.

    Such a function has no decorator. It only declares tiles, computes sizes, loops over ranges, branches, and calls
    instructions or other such functions. It returns nothing, or in its last statement a tile that it declares.
    """
    once = bindings(module)
    defined = {one.name: one for one in module.body if isinstance(one, ast.FunctionDef) and once[one.name] == 1}
    if len(defined) < 2:
        return {}  # the kernel is the only function of the file
    known = frozenset(numbers(module))
    found: dict[str, OwnFunction] = {}
    changed = True
    while changed:  # a function that calls another function can be read only after that other function
        changed = False
        for name, node in defined.items():
            if name not in found and (read := _Reader(api, found, known).function(node)) is not None:
                found[name] = read
                changed = True
    return found


@dataclass(slots=True)
class _Reader:
    """Collect what one function reads and writes, statement by statement."""

    api: str
    others: Mapping[str, OwnFunction]
    known: frozenset[str]
    """Names to which the file assigns an integer once, at its top level."""
    roots: dict[str, str] = field(default_factory=dict)
    """The parameter or declared tile to which a name of a tile, or of a part of a tile, belongs."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    spaces: dict[str, str] = field(default_factory=dict)
    """The memory of each declared tile."""
    _keeps_lanes: bool = False
    """True if a shuffle may leave lanes of its destination as they are."""

    def function(self, node: ast.FunctionDef) -> OwnFunction | None:
        """Return the parameters that a function reads and writes; None if one of its statements is not understood."""
        given = node.args
        if node.decorator_list or given.vararg or given.kwarg or given.posonlyargs:
            return None
        parameters = tuple(one.arg for one in (*given.args, *given.kwonlyargs))
        names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
        local = {*parameters, *(one.id for one in names if isinstance(one.ctx, ast.Store))}
        if not {one.id for one in names} <= {*local, *NO_TILES, *_PURE, *LOOPS, *self.known, *self.others}:
            return None  # the function may use variables that other code changes
        self._keeps_lanes = any(isinstance(one, ast.Constant) and one.value == 255 for one in ast.walk(node)) or any(
            one.arg == "shuffle_mask" and root(one.value) in parameters
            for one in ast.walk(node)
            if isinstance(one, ast.keyword)
        )
        self.roots = {name: name for name in parameters}
        *body, last = node.body
        returned = last.value.id if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) else ""
        if not self._understood(body if returned else node.body):
            return None
        result = self.spaces.get(returned, "")
        if returned and (result not in ON_CHIP or self.roots[returned] != returned):
            return None
        return OwnFunction(
            parameters, frozenset(self.reads & {*parameters}), frozenset(self.writes & {*parameters}), result
        )

    def _understood(self, body: Sequence[ast.stmt]) -> bool:
        return all(self._statement(one) for one in body)

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Return(value=None):
                return True
            case ast.Assert():
                return self._read(node.test) and (node.msg is None or self._read(node.msg))
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=function), orelse=[]):
                return called(function) in LOOPS and name not in self.roots and self._understood(node.body)
            case ast.If():
                return self._read(node.test) and self._understood(node.body) and self._understood(node.orelse)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._named(name, value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                return self._read(value) and not any(one.id in self.roots for name in names for one in names_in(name))
            case ast.Expr(value=ast.Call() as call):
                return self._call(call)
        return False

    def _named(self, name: str, value: ast.expr) -> bool:
        """Record which tile, part or number ``name`` stands for after ``name = value``. Return False if ``value`` is
        not understood.
        """
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in DECLARATIONS:
            root = name
            given = [called(one.value) for one in value.keywords if one.arg == "buffer"]
            if self.spaces.setdefault(name, given[0] if given else "") != (given[0] if given else ""):
                return False  # a tile in one memory or in another
        else:
            root = self._root(value)
        if not root:
            return name not in self.roots and self._read(value)
        if self.roots.get(name, root) != root:
            return False
        self.roots[name] = root
        return True

    def _call(self, call: ast.Call) -> bool:
        if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
            return False
        if isinstance(call.func, ast.Name):
            other = self.others.get(call.func.id) if call.func.id not in self.roots else None
            return other is not None and self._effects(call, other.parameters, other.writes, other.reads)
        name = called(call.func)
        parameters = positional(self.api, "isa").get(name, ())
        if parameters[:1] != ("dst",) or name in _WITH_STATE or any(one.arg == "reduce_cmd" for one in call.keywords):
            return False
        adds = name in _ADDS or (name == "nc_stream_shuffle" and self._keeps_lanes)
        return self._effects(call, parameters, _RESULTS, {"dst"} if adds else set())

    def _effects(
        self, call: ast.Call, parameters: Sequence[str], writes: frozenset[str], reads: frozenset[str] | set[str]
    ) -> bool:
        """Record what a call reads and writes. Return False if an argument is not understood.

        ``parameters`` are those of the called function. The function writes the parameters in ``writes``. It reads all
        others, and those in ``reads``. A written argument must be a tile with a name, or a part of one.
        """
        for name, value in (
            *zip(parameters, call.args, strict=False),
            *((one.arg, one.value) for one in call.keywords),
        ):
            if name in writes and not (isinstance(value, ast.Constant) and value.value is None):
                root = self._root(value)
                if not root:
                    return False
                self.writes.add(root)
                if name not in reads:
                    continue
            if not self._read(value):
                return False
        return len(call.args) <= len(parameters)

    def _read(self, node: ast.expr) -> bool:
        """Record the tiles that an expression reads. Return False if a call in the expression could change a tile."""
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and not self._root(one)]
        if any(isinstance(one.func, ast.Name) and one.func.id not in _PURE for one in calls):
            return False
        if any(self._tiles(argument) for call in calls for argument in ast.iter_child_nodes(call)):
            return False
        self.reads |= self._tiles(node)
        return True

    def _root(self, node: ast.expr) -> str:
        """Return the tile of which ``node`` is a part: ``tile`` for ``tile[0:1, :]``; empty if ``node`` is no part of a tile."""
        match node:
            case ast.Name(id=name):
                return self.roots.get(name, "")
            case ast.Subscript(value=value, slice=index):
                return self._root(value) if self._read(index) else ""
            case ast.Call(func=ast.Attribute(value=value, attr="reshape" | "ap")):
                return self._root(value)
        return ""

    def _tiles(self, node: ast.AST) -> set[str]:
        """Return the tiles whose elements an expression uses."""
        match node:
            case ast.Attribute(value=ast.Name(), attr=name) if name in _OTHERWISE_NAMED:
                return set()
            case ast.Name(id=name):
                return {self.roots[name]} if name in self.roots else set()
        return {tile for child in ast.iter_child_nodes(node) for tile in self._tiles(child)}
