"""Define the records into which a kernel's source is parsed: loops, statements, accesses, buffers."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from acceld.nki.ir.operations import Trait, having
from acceld.nki.source.affine import Affine
from acceld.nki.source.signatures import positional

LOOPS = ("affine_range", "sequential_range", "static_range", "range")
DECLARATIONS = ("ndarray", "zeros", "full", "ones", "shared_constant")
BINARY = "add subtract multiply divide maximum minimum power".split()
UNARY = "exp log sqrt rsqrt square tanh sigmoid silu gelu relu erf sin cos reciprocal negative abs".split()

ELEMENTWISE = having(Trait.WHOLE | Trait.ELEMENTWISE | Trait.IN_PLACE)
"""Instructions that compute each element of their result from the same elements of their operands."""
_IN_BOTH = frozenset(
    "memset activation_reduce tensor_reduce tensor_copy nc_matmul nc_transpose tensor_scalar_reduce tensor_tensor_scan "
    "bn_stats bn_aggr".split()
)
_LISTED = {
    "nki": _IN_BOTH
    | {"dma_copy", "dma_transpose", "nc_stream_shuffle", "iota", "affine_select"}
    | {"select_reduce", "max8", "nc_find_index8", "nc_n_gather"},
    "nki_legacy": _IN_BOTH
    | frozenset("load load_transpose2d store copy matmul loop_reduce sum max".split())
    | frozenset(BINARY)
    | frozenset(UNARY),
}
"""Functions that are understood although no trait of an operation says so, by API."""


@cache
def known_functions(api: str) -> frozenset[str]:
    """Return the functions of ``api`` whose results and operands are understood: those that are listed, and each
    function of ``isa`` with the name of an element-wise instruction. Statements with any other function are opaque.
    """
    return _LISTED[api] | (ELEMENTWISE & positional(api, "isa").keys())


REDUCING = ("activation_reduce", "tensor_scalar_reduce")
"""Functions that reduce their result in addition to writing it. By default the reduction starts anew, without the sum
in the engine's registers.
"""
COPIES = ("copy", "tensor_copy")
PRODUCTS = ("matmul", "nc_matmul")
LOADS = ("load", "load_transpose2d", "dma_copy")
TRANSFERS = (*LOADS, "store")
NO_TILES = frozenset("None True False np numpy nl nisa nki nt math".split())
TILE_SIZES = {"pmax": 128, "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512, "psum_fmax": 512}


@dataclass(frozen=True, slots=True)
class Dim:
    """One index of an access, as an affine form.

    ``form`` is None if the index is not understood. ``extent`` is the length of a slice; None for an index that
    is not a slice.
    """

    form: Affine | None
    extent: int | None = None
    text: str = ""
    full: bool = False
    """True for the index ``:``, whose ``extent`` may be unknown."""
    unsized: bool = False
    """True for a slice that begins at ``form`` and has an unknown or varying number of elements."""
    span: tuple[Affine, Affine] | None = None
    """Start and number of elements of a slice whose number of elements depends on loop variables."""

    @property
    def width(self) -> int | None:
        """Return the number of elements that the index covers: 1 for a single position; None if it is not
        known.
        """
        if self.extent is not None:
            return self.extent
        if self.form is None or self.unsized:
            return None
        width = 1
        for symbol in self.form.ranges:
            width *= symbol.extent
        return width

    @property
    def is_point(self) -> bool:
        """Tell whether the index selects one known element."""
        return (
            self.form is not None and self.extent is None and not (self.full or self.unsized) and not self.form.ranges
        )

    def covers(self, extent: int | None) -> bool:
        """Tell whether the index is ``:``, or a slice of the first ``extent`` elements."""
        return self.full or (self.form == Affine() and self.extent == extent)

    @property
    def begin(self) -> Affine | None:
        """Return the first element that the index covers; None if it is not understood."""
        return self.form if self.span is None else self.span[0]

    def reach(
        self,
        trips: Mapping[str, int | None],
        without: str,
        shift: Affine = Affine(),  # noqa: B008  # frozen
    ) -> tuple[int, int] | None:
        """Return the least and the greatest element that the index covers while the loop variable ``without`` is
        zero.

        Elements are counted from element ``shift`` on. ``trips`` has the number of iterations of every other loop, by
        its variable. Return None if a number is needed that is not known.
        """
        assert self.begin is not None
        begin = self.begin - shift
        low = high = begin.constant
        for symbol, coefficient in begin.terms:
            if symbol.name == without:
                continue
            count = symbol.extent if symbol.is_range else trips.get(symbol.name)
            if count is None:
                return None
            low, high = low + min(0, coefficient * (count - 1)), high + max(0, coefficient * (count - 1))
        width = (self.extent or 1) if self.span is None else _most(self.span[1])
        return None if width is None else (low, high + width - 1)


def _most(size: Affine) -> int | None:
    """Return a number that the size of a slice never exceeds; None if none is known."""
    most = size.constant
    for symbol, coefficient in size.terms:
        if symbol.most is None or coefficient < 0:
            return None
        most += coefficient * symbol.most
    return most


@dataclass(frozen=True, slots=True)
class Access:
    """One use of a buffer or tile in an expression. ``dims`` has the indices; None if the whole buffer or tile is used."""

    name: str
    dims: tuple[Dim, ...] | None
    node: ast.expr

    @property
    def variables(self) -> frozenset[str] | None:
        """Return the loop variables in the indices; None if an index is not understood."""
        found: set[str] = set()
        for dim in self.dims or ():
            if dim.form is None:
                return None
            found |= dim.form.variables
        return frozenset(found)

    def same_as(self, other: Access) -> bool:
        """Tell whether it is proved that both accesses refer to the same elements of the same buffer."""
        if self.name != other.name or (self.dims is None) != (other.dims is None):
            return False
        if self.dims is None or other.dims is None:
            return True
        if len(self.dims) != len(other.dims):
            return False
        pairs = zip(self.dims, other.dims, strict=True)
        return all(
            a.span == b.span
            if a.span is not None
            else a.form is not None and a.form == b.form and a.extent == b.extent and not (a.unsized or b.unsized)
            for a, b in pairs
        )


@dataclass(frozen=True, slots=True)
class Binary:
    """One element-wise operation ``left op right``. ``left`` and ``right`` are names of arguments of the call."""

    op: str
    left: str
    right: str

    def other(self, argument: str) -> str | None:
        """Return the name of the other operand's argument; None if ``argument`` is not an operand."""
        return {self.left: self.right, self.right: self.left}.get(argument)


@dataclass(slots=True, eq=False)
class Loop:
    """One ``for`` loop over a range. ``trips`` is None if the number of iterations is not known."""

    node: ast.For
    variable: str
    kind: str
    """One of ``LOOPS``. A loop over Python's ``range`` whose iterations are proved to be independent counts as an
    ``affine_range``.
    """
    trips: int | None
    line: int
    start: int
    end: int
    indent: str
    parent: Loop | None
    items: list[Item] = field(default_factory=list)
    _inside: tuple[Statement, ...] | None = None
    """All statements inside, computed at the first request. Rules request them often, and a loop does not change once
    it is read.
    """

    def statements(self) -> tuple[Statement, ...]:
        """Return all statements inside the loop at any depth, in order."""
        if self._inside is None:
            self._inside = tuple(flatten(self.items))
        return self._inside

    def loops(self) -> Iterator[Loop]:
        """Yield all loops inside this loop, outer loops before inner ones."""
        for item in self.items:
            if isinstance(item, Loop):
                yield item
                yield from item.loops()


@dataclass(slots=True, eq=False)
class Statement:
    """One statement of a kernel. ``kind`` is one of:

    * op: an operation on tiles;
    * declaration: a declaration of a tensor or tile;
    * alias: a name for an index or a shape;
    * marker: a statement without effect on tiles, such as a string or an import;
    * return: a return statement;
    * other: a statement that is not understood.
    """

    node: ast.AST
    """The statement's node of the syntax tree. If several statements share a line, the node is a module of these
    statements.
    """
    kind: str
    line: int
    start: int
    end: int
    indent: str
    parent: Loop | None
    op: str = ""
    namespace: str = ""
    target: Access | None = None
    augmented: bool = False
    args: dict[str, ast.expr] = field(default_factory=dict)
    reads: dict[str, Access] = field(default_factory=dict)
    """The accesses among the arguments by the argument's name, for arguments that are one access and nothing more."""
    mentions: list[Access] = field(default_factory=list)
    """All accesses that the statement reads, including those inside expressions."""
    second: Access | None = None
    """The second result, if there is one: ``reduce_res``, the sum over what an instruction writes."""

    @property
    def made(self) -> Access:
        """Return the target of the statement, which must have one."""
        assert self.target is not None
        return self.target

    @property
    def results(self) -> tuple[Access, ...]:
        """Return the accesses that the statement writes: its target and its second result, where it has them."""
        if self.second is not None:
            return (self.second,) if self.target is None else (self.target, self.second)
        return () if self.target is None else (self.target,)

    def result(self, name: str) -> Access | None:
        """Return the access by which the statement writes the tile or tensor ``name``; None if the statement does not
        write ``name``.
        """
        return next((access for access in self.results if access.name == name), None)


Item = Loop | Statement


@dataclass(frozen=True, slots=True)
class Buffer:
    """One declared tensor or tile. An unknown extent in ``shape`` is None. Without a known rank, ``shape`` is (None,)."""

    name: str
    shape: tuple[int | None, ...]
    space: str
    partition_axis: int
    declaration: Statement

    @property
    def extents(self) -> list[ast.expr]:
        """Return the extents of the shape in the declaration, as expressions."""
        return elements(self.declaration.args["shape"])

    @property
    def is_written_out(self) -> bool:
        """Tell whether the declaration writes the shape as a tuple or list of extents, and not as a name."""
        return isinstance(self.declaration.args.get("shape"), ast.Tuple | ast.List)


@dataclass(frozen=True, slots=True)
class Returned:
    """A tile on the chip that a function of the file returns."""

    memory: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""


def accesses(statement: Statement) -> list[Access]:
    """Return every access that a statement reads or writes, once each. The name that a declaration declares
    does not count.
    """
    found = [*statement.mentions, *(statement.results if statement.kind != "declaration" else ())]
    return list({id(access.node): access for access in found}.values())


def flatten(items: Sequence[Item]) -> Iterator[Statement]:
    """Yield all statements in ``items``, in order, including those in loops."""
    for item in items:
        if isinstance(item, Loop):
            yield from item.statements()
        else:
            yield item


@lru_cache(maxsize=32768)
def names_in(node: ast.AST) -> tuple[ast.Name, ...]:
    """Return all names inside ``node``, in the order of the source. Names of attributes and keywords are not
    included.
    """
    # Caching is safe, because nodes are compared by identity and never change.
    return tuple(uncached_names_in(node))


def uncached_names_in(node: ast.AST) -> list[ast.Name]:
    """Return what :func:`names_in` returns, but do not keep the result for later calls. This saves memory if ``node``
    is a whole module.
    """
    found: list[ast.Name] = []
    left = [node]
    while left:
        one = left.pop()
        if isinstance(one, ast.Name):
            found.append(one)
        elif one.__class__ is not ast.Constant:
            left += reversed(_CHILDREN[one.__class__](one))
    return found


def below(node: ast.AST) -> list[ast.AST]:
    """Return the children of ``node`` in the order of the source. Expression contexts and operators are left
    out.
    """
    return _CHILDREN[node.__class__](node)


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield ``node`` and all nodes inside it, in any order, without expression contexts and operators. This takes a
    fraction of the time of ``ast.walk``.
    """
    left = [node]
    while left:
        one = left.pop()
        yield one
        if one.__class__ not in LEAVES:
            left += _CHILDREN[one.__class__](one)


LEAVES = frozenset({ast.Name, ast.Constant})
"""Kinds of most of the nodes that have no children."""
_MIXED = frozenset("keys kw_defaults names kwd_attrs".split())
"""Fields with lists of which not all elements are nodes."""
_NO_CHILDREN = frozenset("ctx op ops id attr arg name asname module level kind type_comment".split())


def _children_of(fields: tuple[str, ...]) -> Callable[[Any], list[ast.AST]]:
    """Return a function that returns the nodes in the ``fields`` of a node."""

    def children(node: ast.AST) -> list[ast.AST]:
        found: list[ast.AST] = []
        for name in fields:
            value = getattr(node, name)
            if value.__class__ is list:
                found += value if name not in _MIXED else [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
        return found

    return children


class _Children(dict[type[ast.AST], Callable[[Any], list[ast.AST]]]):
    """For each kind of node, the function that returns the children of such a node."""

    def __missing__(self, kind: type[ast.AST]) -> Callable[[Any], list[ast.AST]]:
        made = self[kind] = _children_of(tuple(name for name in kind._fields if name not in _NO_CHILDREN))
        return made


_CHILDREN = _Children(
    {
        # the most frequent kinds, without a loop over their fields
        ast.Constant: lambda node: [],
        ast.Name: lambda node: [],
        ast.Attribute: lambda node: [node.value],
        ast.Subscript: lambda node: [node.value, node.slice],
        ast.Call: lambda node: [node.func, *node.args, *node.keywords],
        ast.keyword: lambda node: [node.value],
        ast.Tuple: lambda node: [*node.elts],
        ast.BinOp: lambda node: [node.left, node.right],
        ast.Expr: lambda node: [node.value],
        ast.Assign: lambda node: [*node.targets, node.value],
        ast.Slice: lambda node: [one for one in (node.lower, node.upper, node.step) if one is not None],
    }
)


def elements(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple, list or index as a list; for example the indices of an access, or the
    extents of a shape.
    """
    if isinstance(node, ast.Subscript):
        return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def blocks(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """Yield a block of statements, and the bodies of the ``for`` loops in it at any depth."""
    yield body
    for statement in body:
        if isinstance(statement, ast.For):
            yield from blocks(statement.body)


@lru_cache(maxsize=16)
def is_straight(function: ast.FunctionDef) -> bool:
    """Tell whether a function runs its statements in the order of the source, in one scope: without inner functions,
    assignments inside expressions, jumps, handlers and names of other scopes.

    The last results are kept, because several steps of normalization ask for them.
    """
    return not any(node.__class__ in _NOT_STRAIGHT for statement in function.body for node in walked(statement))


_NOT_STRAIGHT = frozenset(
    {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.NamedExpr, ast.Global, ast.Nonlocal}
    | {ast.Continue, ast.Break, ast.While, ast.Try, ast.TryStar, ast.With, ast.Delete, ast.Match}
)


@lru_cache(maxsize=4)
def bindings(module: ast.Module) -> Counter[str]:
    """Return how many times each name is bound anywhere in a file: by assignments, loops, definitions and imports.

    The last results are kept, because several steps of reading a file ask for them. Callers must not change them.
    """
    found = Counter[str]()
    for node in walked(module):
        if isinstance(node, ast.Name):
            if type(node.ctx) is ast.Store:
                found[node.id] += 1
        elif node.__class__ not in _DEFINES:  # a fast exit, because most nodes are parts of calls
            continue
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] += 1
        elif isinstance(node, ast.alias):
            found[(node.asname or node.name).partition(".")[0]] += 1
    return found


_DEFINES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias})


def numbers(module: ast.Module) -> set[str]:
    """Return the names to which the file's top-level statements assign exactly one value, an integer."""
    once = bindings(module)
    found = set[str]()
    for one in module.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)) if type(value) is int:
                found |= {name} if once[name] == 1 else set()
    changed = {name for one in walked(module) if isinstance(one, ast.Global) for name in one.names}
    return found - changed


def root(node: ast.expr) -> str:
    """Return the first name in an expression such as ``nl.tile_size.pmax`` or ``tile[0:1]``; empty if the expression
    does not begin with a name.
    """
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def called(function: ast.expr) -> str:
    """Return the name of a called function without its module; empty if the function has no name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def call_arguments(function: ast.FunctionDef, call: ast.Call) -> tuple[dict[str, ast.expr], dict[str, ast.expr]] | None:
    """Return (arguments of a call by parameter of ``function``, defaults of the parameters that the call leaves out).

    Return None if the arguments do not fit the parameters, or are not written out one by one.
    """
    given = function.args
    parameters = [one.arg for one in (*given.args, *given.kwonlyargs)]
    if len(call.args) > len(given.args) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    values: dict[str, ast.expr] = dict(zip((one.arg for one in given.args), call.args, strict=False))
    for one in call.keywords:
        if one.arg not in parameters or one.arg in values:
            return None
        values[one.arg] = one.value
    last = given.args[len(given.args) - len(given.defaults) :]
    defaults = {one.arg: value for one, value in zip(last, given.defaults, strict=True)}
    defaults |= {one.arg: value for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
    others = {name: value for name, value in defaults.items() if name not in values}
    return (values, others) if values.keys() | others.keys() == set(parameters) else None


def assigned(statement: Statement) -> tuple[str, ast.expr] | None:
    """Return name and value of a statement ``name = value``; None for other statements."""
    match statement.node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
    return None


def value_of(statement: Statement) -> ast.expr | None:
    """Return the value of a statement ``target = value``; None for other statements."""
    node = statement.node
    return node.value if isinstance(node, ast.Assign) else None
