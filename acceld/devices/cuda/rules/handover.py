"""Prove that a launch stores exactly the elements that the next launch loads, in each program.

For example, ``h_ptr + rows * 128 + cols`` and ``h_ptr + at`` below are proven to be the same elements in the
same program, and ``h`` is proven to be read nowhere else. So ``scale`` can use the value that ``product`` has
computed::

    h = torch.empty_like(x)
    product[grid](x, w, h, n)      # tl.store(h_ptr + rows * 128 + cols, total, mask=rows < n)
    scale[grid](h, out, n)         # tl.store(out_ptr + at, 2 * tl.load(h_ptr + at, mask=inside), mask=inside)

The producer is the kernel of the earlier launch; the consumer is the kernel of the later launch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from acceld.devices.cuda.rules.reading import (
    FunctionNode,
    Launch,
    TritonModule,
    accesses,
    called,
    calls,
    constants,
    depending,
    mask,
    names,
    parameters,
    returns_early,
    walk,
)
from acceld.parsing import parse_expression

_BY_ELEMENT = frozenset(
    (
        "tl.load tl.store tl.arange tl.program_id tl.constexpr tl.where tl.maximum tl.minimum tl.abs tl.fma "
        "tl.exp tl.exp2 tl.log tl.log2 tl.sqrt tl.rsqrt tl.sigmoid tl.sin tl.cos tl.erf tl.cdiv"
    ).split()
)
"""Calls that compute each element of their result from the elements of their arguments at the same position."""
_ALLOCATIONS = ("torch.empty", "torch.empty_like")


@dataclass(frozen=True)
class Handover:
    """The proof that two launches can be joined.

    A mapping's keys are parameters of the producer, unless the field says otherwise.
    """

    first: Launch
    second: Launch
    arrays: Mapping[str, ast.stmt]
    """The statement that allocates an array which the producer stores for the consumer, by the array's name in the host
    code.
    """
    stored: tuple[str, ...]
    loaded: Mapping[str, str]
    """The producer's parameter for the array that the consumer gets as a parameter, by the consumer's parameter."""
    values: Mapping[str, str]
    """For each array, an unused name for the value that is stored to it."""
    kinds: Mapping[str, str]
    """The element type of each array, as written in device code."""
    shared: frozenset[str]
    """Parameters that both the consumer and the producer have."""
    renamed: Mapping[str, str]
    """The name that a name of the consumer has in the joined kernel, by the consumer's name."""
    dropped: tuple[ast.stmt, ...]
    """Statements of the consumer that are left out, because the producer has computed their values already."""


def handover(kernel: TritonModule, first: Launch, second: Launch) -> Handover | None:
    """Return the proof that the two launches can be joined; None if there is no proof."""
    if not _adjacent(kernel, first, second) or not _same_grid(first, second):
        return None
    producer, consumer = kernel.kernels[first.kernel], kernel.kernels[second.kernel]
    if not (_plain(producer, first) and _plain(consumer, second) and _by_element(consumer)):
        return None
    if returns_early(producer) or any("atomic" in called(one) for one in ast.walk(producer)):
        return None
    made, taken = _Given(producer, first), _Given(consumer, second)
    arrays = _arrays(first, second)
    stored = _stored(producer, made, arrays)
    loaded = _loaded(first, consumer, made, taken, stored) if stored else None
    if loaded is None or _mixes(consumer, set(loaded)):
        return None
    kinds = {parameter: _kind(arrays[made.host(parameter)], made, stored) for parameter in stored}
    if any(kind is None for kind in kinds.values()):
        return None
    return _named(
        kernel, first, second, (made, taken), arrays, loaded, {one: kind or "" for one, kind in kinds.items()}
    )


def _stored(producer: FunctionNode, made: _Given, arrays: Mapping[str, ast.stmt]) -> dict[str, ast.Call]:
    """Return the producer's store to each array, as a dict by parameter. Return an empty mapping if an array is stored
    twice or used in another way, or if the stores have different masks.
    """
    stored: dict[str, ast.Call] = {}
    for statement in walk(producer.body):
        for access in calls(statement, "tl.store") if isinstance(statement, ast.Expr) else ():
            parameter = _parameter(access, producer)
            if statement not in producer.body or parameter in stored or made.host(parameter) not in arrays:
                return {}
            stored[parameter] = access
    alone = all(_only_stored(producer, one) and bare(access, one) is not None for one, access in stored.items())
    masks = {made.expanded(mask(access)) for access in stored.values()}
    hosts = {made.host(parameter) for parameter in stored}
    return stored if alone and len(masks) == 1 and len(hosts) == len(stored) else {}


def _loaded(
    first: Launch, consumer: FunctionNode, made: _Given, taken: _Given, stored: Mapping[str, ast.Call]
) -> dict[str, str] | None:
    """Return the producer's parameter for the same array, for each parameter from which the consumer loads. Return None
    unless the consumer loads each stored array once, and exactly the elements that were stored. The consumer has to
    store under the same mask, to arrays that the producer does not use.
    """
    hosts = {made.host(parameter): parameter for parameter in stored}
    limit = made.expanded(mask(next(iter(stored.values()))))
    loaded: dict[str, str] = {}
    stores = 0
    for access in accesses(consumer):
        parameter = _parameter(access, consumer)
        host = taken.host(parameter)
        if called(access) == "tl.store":
            stores += 1
            if host in hosts or taken.expanded(mask(access)) != limit or not _fresh(first, host):
                return None
        elif host in hosts:
            if parameter in loaded or sum(one.id == parameter for one in _reads(consumer)) != 1:
                return None
            if taken.expanded(access.args[0]) != made.expanded(stored[hosts[host]].args[0]):
                return None
            if taken.expanded(mask(access)) != limit:
                return None
            loaded[parameter] = hosts[host]
    return loaded if stores and set(loaded.values()) == set(stored) else None


class _Given:
    """A kernel together with the arguments of its only launch. With both, expressions of two kernels can be compared."""

    def __init__(self, function: FunctionNode, launch: Launch) -> None:
        self.function = function
        known = parameters(function)
        passed: dict[str, ast.expr] = dict(zip(known, launch.call.args, strict=False))
        passed |= {one.arg: one.value for one in launch.call.keywords if one.arg in known}
        self.passed = passed
        self.fixed = set(constants(function))
        bound: dict[str, list[ast.expr | None]] = {}
        for statement in walk(function.body):
            targets = [getattr(statement, "target", None), *getattr(statement, "targets", [])]
            for target in targets:
                single = isinstance(target, ast.Name) and isinstance(statement, ast.Assign)
                for name in names(target) if target is not None else ():
                    value = statement.value if single and isinstance(statement, ast.Assign) else None
                    bound.setdefault(name, []).append(value if statement in function.body else None)
        self.bound = bound
        self.meaning = {name: values[0] for name, values in bound.items() if len(values) == 1 and values[0] is not None}

    def host(self, parameter: str) -> str:
        """Return the name of the host code's variable that is passed for a parameter; empty if the host code passes
        another expression.
        """
        given = self.passed.get(parameter)
        return given.id if isinstance(given, ast.Name) else ""

    def expanded(self, node: ast.AST | None) -> str:
        """Return an expression as a text in terms of the launch's arguments and the program numbers.

        Expressions with equal texts have equal values. A name that is assigned once is replaced by its value.
        """
        return "" if node is None else ast.dump(_Expansion(self).visit(parse_expression(ast.unparse(node))))


class _Expansion(ast.NodeTransformer):
    def __init__(self, given: _Given, seen: frozenset[str] = frozenset()) -> None:
        self._given, self._seen = given, seen

    def visit_Name(self, node: ast.Name) -> ast.AST:
        given = self._given
        if node.id in self._seen:
            return ast.Name(f"{given.function.name}:{node.id}")
        if node.id in given.meaning and node.id not in given.passed:
            value = parse_expression(ast.unparse(given.meaning[node.id]))
            inner: ast.AST = _Expansion(given, self._seen | {node.id}).visit(value)
            return inner
        if node.id in given.bound:
            return ast.Name(f"{given.function.name}:{node.id}")
        if node.id in given.passed:
            passed = ast.unparse(given.passed[node.id])
            return ast.Name(f"constant {passed}" if node.id in given.fixed else f"host {passed}")
        return ast.Name(node.id)


def _adjacent(kernel: TritonModule, first: Launch, second: Launch) -> bool:
    """Tell whether each of two kernels is launched exactly once, with nothing but allocations between the two
    launches.
    """
    body = first.host.body
    if first.host is not second.host or first.kernel == second.kernel:
        return False
    if first.statement not in body or second.statement not in body:
        return False
    if kernel.single_launch(first.kernel) is None or kernel.single_launch(second.kernel) is None:
        return False
    between = body[body.index(first.statement) + 1 : body.index(second.statement)]
    used = names(first.call)
    for statement in between:
        if not isinstance(statement, ast.Assign) or called(statement.value) not in _ALLOCATIONS:
            return False
        if any(not isinstance(one, ast.Name) or one.id in used for one in statement.targets):
            return False
    return True


def _same_grid(first: Launch, second: Launch) -> bool:
    return bool(first.grid) and [ast.dump(one) for one in first.grid] == [ast.dump(one) for one in second.grid]


def _plain(function: FunctionNode, launch: Launch) -> bool:
    """Tell whether the arguments of a launch can be matched with ``function``'s parameters by name and position."""
    taken = function.args
    unusual = taken.vararg or taken.kwarg or taken.kwonlyargs or taken.posonlyargs or taken.defaults
    starred = any(isinstance(one, ast.Starred) for one in launch.call.args)
    return not unusual and not starred and all(one.arg is not None for one in launch.call.keywords)


def _by_element(function: FunctionNode) -> bool:
    for statement in function.body:
        if isinstance(statement, ast.Assign):
            if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
                return False
        elif isinstance(statement, ast.AugAssign):
            if not isinstance(statement.target, ast.Name):
                return False
        elif not (isinstance(statement, ast.Expr) and called(statement.value) == "tl.store"):
            return False
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and called(node) not in _BY_ELEMENT and not called(node).endswith(".to"):
                return False
    return True


def _mixes(function: FunctionNode, loaded: set[str]) -> bool:
    """Tell whether a loaded value is used in a way that mixes elements: to compute an address, or combined with other
    elements by an index.
    """
    first = {
        name
        for statement in function.body
        if isinstance(statement, ast.Assign) and names(statement.value) & loaded
        for name in names(statement.targets[0])
    }
    # the parameters are left out: every address begins with one, which mixes no elements
    values = depending(function, first)
    if any(values & names(access.args[0]) for access in accesses(function)):
        return True
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and names(node.value) & (values | loaded):
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("T", "trans"):
            return True
        if isinstance(node, ast.MatMult):
            return True
    return False


def bare(store: ast.Call, parameter: str) -> ast.expr | None:
    """Return the expression that a store stores, without the conversion to the array's element type.

    Return None if the expression itself depends on that type, or if a plain number is stored.
    """
    value = store.args[1] if len(store.args) > 1 else None
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "to"
        and [ast.unparse(one) for one in value.args] == [f"{parameter}.dtype.element_ty"]
    ):
        value = value.func.value
    if value is None or isinstance(value, ast.Constant) or parameter in names(value):
        return None
    return value


def _arrays(first: Launch, second: Launch) -> dict[str, ast.stmt]:
    """Return the arrays that the host code allocates for these two launches alone, with the allocating statements."""
    found: dict[str, ast.stmt] = {}
    for statement in first.host.body:
        if not isinstance(statement, ast.Assign) or called(statement.value) not in _ALLOCATIONS:
            continue
        target = statement.targets[0]
        if len(statement.targets) != 1 or not isinstance(target, ast.Name):
            continue
        uses = [one for one in ast.walk(first.host) if isinstance(one, ast.Name) and one.id == target.id]
        inside = [
            one
            for launch in (first, second)
            for one in launch.call.args
            if isinstance(one, ast.Name) and one.id == target.id
        ]
        if len(uses) == 3 and len(inside) == 2:
            found[target.id] = statement
    return found


def _fresh(first: Launch, host: str) -> bool:
    """Tell whether ``host`` is an array that the host code allocates and does not pass to the launch ``first``."""
    if not host or host in names(first.call):
        return False
    bound = [
        one
        for one in walk(first.host.body)
        if isinstance(one, ast.Assign) and any(host in names(target) for target in one.targets)
    ]
    aliased = [
        one
        for one in walk(first.host.body)
        if isinstance(one, ast.Assign) and host in names(one.value) and called(one.value) not in _ALLOCATIONS
    ]
    return len(bound) == 1 and called(bound[0].value) in _ALLOCATIONS and not aliased


def _parameter(access: ast.Call, function: FunctionNode) -> str:
    """Return the parameter to which the pointer of an access adds its offsets; empty unless there is exactly one
    parameter in the pointer.
    """
    pointer = access.args[0]
    while isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add):
        pointer = pointer.left
    return pointer.id if isinstance(pointer, ast.Name) and pointer.id in parameters(function) else ""


def _reads(function: FunctionNode) -> list[ast.Name]:
    return [one for one in ast.walk(function) if isinstance(one, ast.Name)]


def _only_stored(function: FunctionNode, parameter: str) -> bool:
    """Tell whether the function uses a parameter only in one store: as the store's pointer, and for the array's element
    type.
    """
    inside = [
        one
        for access in accesses(function)
        if called(access) == "tl.store" and _parameter(access, function) == parameter
        for one in ast.walk(access)
        if isinstance(one, ast.Name) and one.id == parameter
    ]
    return len([one for one in _reads(function) if one.id == parameter]) == len(inside) <= 2


def _kind(made: ast.stmt, given: _Given, stored: Mapping[str, ast.Call]) -> str | None:
    """Return the element type of an allocated array, as device code writes it; None if the type is unknown."""
    assert isinstance(made, ast.Assign) and isinstance(made.value, ast.Call)
    dtype = next((one.value for one in made.value.keywords if one.arg == "dtype"), None)
    if dtype is None and called(made.value) == "torch.empty_like" and made.value.args:
        like: ast.AST = made.value.args[0]
    elif isinstance(dtype, ast.Attribute) and dtype.attr == "dtype":
        like = dtype.value
    elif isinstance(dtype, ast.Attribute) and called(dtype).startswith("torch.float"):
        return f"tl.{dtype.attr}"
    elif dtype is not None and called(dtype) in ("torch.bfloat16",):
        return "tl.bfloat16"
    else:
        return None
    if not isinstance(like, ast.Name):
        return None
    same = [one for one in given.passed if given.host(one) == like.id and one not in stored and one not in given.fixed]
    return f"{same[0]}.dtype.element_ty" if same else None


def _named(
    kernel: TritonModule,
    first: Launch,
    second: Launch,
    given: tuple[_Given, _Given],
    arrays: Mapping[str, ast.stmt],
    loaded: Mapping[str, str],
    kinds: Mapping[str, str],
) -> Handover | None:
    """Return the handover, with names for the joined kernel that are not used yet; None if the two kernels can not be
    joined.
    """
    made, taken = given
    renamed: dict[str, str] = {}
    shared: set[str] = set()
    for parameter, value in taken.passed.items():
        for other, same in made.passed.items():
            if ast.dump(same) == ast.dump(value) and (other in made.fixed) == (parameter in taken.fixed):
                renamed[parameter] = other
                shared.add(parameter)
    known = {made.expanded(ast.Name(name)): name for name in made.meaning}
    dropped = []
    for statement in taken.function.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(target, ast.Name) or target.id not in taken.meaning:
            continue
        same_name = known.get(taken.expanded(target))
        if same_name is not None and not calls(statement, "tl.load"):
            renamed[target.id] = same_name
            dropped.append(statement)
    used = names(made.function) | set(parameters(made.function))
    for name in [*parameters(taken.function), *taken.bound]:
        if name not in renamed and name not in loaded and name in used:
            renamed[name] = kernel.fresh(f"{name}_after", renamed.values())
    values = {parameter: kernel.fresh(f"{parameter}_tile", renamed.values()) for parameter in kinds}
    between = {made.host(parameter): arrays[made.host(parameter)] for parameter in kinds}
    return Handover(
        first, second, between, tuple(kinds), loaded, values, kinds, frozenset(shared), renamed, tuple(dropped)
    )
