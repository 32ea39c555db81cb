"""Write the bodies of a file's own functions where a kernel calls them, so that rules see through the calls.

For example, with this function in the file ::

    def loaded(x, r0):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r0:r0 + 128, :])
        return tile

the statement ``a = loaded(x, 128 * t)`` of a kernel becomes ::

    a = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[(128 * t):(128 * t) + 128, :])

:func:`with_calls` writes the calls again whose statements did not change.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

from acceld.editing import Edits, SourceText
from acceld.nki.source.lives import new_name
from acceld.nki.source.spans import is_alone, parsed
from acceld.nki.source.syntax import (
    LOOPS,
    NO_TILES,
    bindings,
    call_arguments,
    called,
    is_straight,
    names_in,
    root,
    uncached_names_in,
    walked,
)
from acceld.parsing import parse

_MOST_CALLS = 64
"""Greatest number of calls that are written out."""
_MOST_LINES = 600
"""Greatest number of lines of a source with the bodies of its functions."""
_STEADY = (
    *(ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Attribute),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Compare, ast.cmpop),
)
"""Kinds of nodes of expressions that have no effect."""
_BY_NAME = frozenset({"dir", "eval", "exec", "globals", "locals", "vars"})
"""Functions of Python that use the names of variables as texts."""
_PURE = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "range", "round"})
"""Functions of Python that change no list, dictionary or object."""
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)
"""Kinds of nodes whose code runs later, and reads the names of the function around it then."""
_OTHER_LINES = re.compile(r"\r(?!\n)|\f")
"""Matches characters behind which Python counts the indentation of a line anew, and which end no line here."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that was written out: the line and the text of its statement, and the lines that took the statement's place."""

    at: int
    statement: str
    lines: tuple[str, ...]
    homes: tuple[int, ...]
    """The line of the function from which each of ``lines`` comes; that of the statement if it comes from none."""


def inlined(source: str) -> str:
    """Return ``source`` with the bodies of its own functions in place of the calls in its kernels.

    Return ``source`` itself if it does not parse, if nothing can be written out, or if the result would be too long.
    """
    return _inlined(source)[0]


@lru_cache(maxsize=16)
def origins(source: str) -> tuple[tuple[int, int], ...]:
    """Return two lines of ``source`` for each line of ``inlined(source)``: that of the kernel, which for a line of a
    function's body is the call, and that of the text, which is then the line of the function.
    """
    found = [(line, line) for line in range(1, source.count("\n") + 2)]
    for call in _inlined(source)[1]:
        at, count = call.at - 1, call.statement.count("\n") + 1
        found[at : at + count] = [(found[at][0], found[home - 1][1]) for home in call.homes]
    return tuple(found)


@lru_cache(maxsize=16)
def _inlined(source: str) -> tuple[str, tuple[_Call, ...]]:
    """Return the source with the bodies of its functions, and the calls that were written out, in the order in which that
    was done.
    """
    now, calls = source, list[_Call]()
    if _OTHER_LINES.search(source):
        return source, ()
    for _ in range(_MOST_CALLS):
        try:
            found = _one_written_out(now)
        except (SyntaxError, ValueError):
            return source, ()
        if found is None:
            break
        now, call = found
        calls.append(call)
        if now.count("\n") > _MOST_LINES:
            return source, ()
    return now, tuple(calls)


def is_inlined(original: str, changed: str) -> bool:
    """Tell whether ``changed`` is a rewrite of ``inlined(original)``: it has fewer calls of the functions of the file."""
    if inlined(original) == original:
        return False
    functions = _functions(parsed(original))
    before, after = (
        sum(isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in functions for one in nodes)
        for nodes in (walked(parsed(original)), walked(parsed(changed)))
    )
    return after < before


def with_calls(original: str, changed: str) -> str:
    """Return ``changed``, a rewrite of ``inlined(original)``, with those calls of ``original`` whose statements the rewrite
    left alone. Functions that are no longer called are left out.
    """
    text = changed
    for call in reversed(_inlined(original)[1]):
        lines, count = text.split("\n"), len(call.lines)
        for at in range(len(lines) - count, -1, -1):
            if tuple(lines[at : at + count]) == call.lines:
                before = "\n".join([*lines[:at], call.statement, *lines[at + count :]])
                if inlined(before) == inlined(text):
                    text = before
                    break
    return _without_unused(original, text)


def _without_unused(original: str, changed: str) -> str:
    """Return ``changed`` without the functions of the file that ``original`` calls and ``changed`` does not."""
    called = {node.id for node in walked(parsed(original)) if isinstance(node, ast.Name)}
    while True:
        module, text, edits = parsed(changed), SourceText(changed), Edits(changed)
        used = {node.id for node in walked(module) if isinstance(node, ast.Name)}
        gone = [one for one in module.body if isinstance(one, ast.FunctionDef) and one.name in called - used]
        gone = [one for one in gone if not one.decorator_list]
        for one in gone:
            start, end = text.span(one)
            while changed[:start].endswith("\n\n\n"):
                start -= 1
            edits.replace(start, text.after_line(end), "")
        if not gone:
            return changed
        changed = edits.apply()


def _one_written_out(source: str) -> tuple[str, _Call] | None:
    """Return the source with one call less; None if no call can be written out."""
    module, text = parsed(source), SourceText(source)
    functions = _functions(module)
    if not functions:
        return None
    for caller in module.body:
        if not isinstance(caller, ast.FunctionDef) or caller.name in functions:
            continue
        bound, counted = _bound(caller), _counted(caller)
        for statement in _statements(caller.body):
            call = _first_call(statement, functions, bound, counted)
            if call is None or not is_alone(text, statement):
                continue
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in bound or _BY_NAME & {one.id for one in names_in(caller)}:
                continue
            if any(isinstance(one, ast.NamedExpr) for one in walked(caller)):
                continue  # an argument may bind the name that an argument before it reads
            lines = _written_out(text, caller, statement, call, functions[name])
            if lines is not None:
                start, end = text.line_start(text.span(statement)[0]), text.span(statement)[1]
                behind = source[end : text.after_line(end)].rstrip("\n")
                edits = Edits(source)
                at, (texts, homes) = text.line(start), zip(*lines, strict=True)
                edits.replace(start, end + len(behind), "\n".join(texts))
                return edits.apply(), _Call(
                    at, source[start : end + len(behind)], texts, tuple(home or at for home in homes)
                )
    return None


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a file whose calls may be written out, as a dict by name: plain functions that are only
    called.
    """
    once = bindings(module)
    uses = Counter(one.id for one in walked(module) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    calls = Counter(
        one.func.id for one in walked(module) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    )
    found = dict[str, ast.FunctionDef]()
    if any(isinstance(one, ast.Global | ast.Nonlocal) for one in walked(module)):
        return found  # a call may change what a name means
    if any(isinstance(one, ast.Match) for one in module.body) or _BY_NAME & once.keys() | _BY_NAME & uses.keys():
        return found  # the file may give the name of a function to something else
    for one in module.body:
        if any(isinstance(each, ast.alias) and each.name == "*" for each in walked(one)):
            found.clear()  # the other module may have functions with these names
        if isinstance(one, ast.FunctionDef) and once[one.name] == 1 and 0 < calls[one.name] == uses[one.name]:
            inside = any(isinstance(each, ast.Name) and each.id == one.name for each in walked(one))
            if not inside and _is_plain(one):
                found[one.name] = one
    return found


def _is_plain(function: ast.FunctionDef) -> bool:
    """Tell whether a function takes plain arguments, runs in the order of its source and returns at its end alone."""
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs or function.decorator_list or not is_straight(function):
        return False
    defaults = [*given.defaults, *(one for one in given.kw_defaults if one is not None)]
    if not all(isinstance(one, ast.Constant) for one in defaults):
        return False
    nodes = [node for statement in function.body for node in walked(statement)]
    if any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await | ast.Import | ast.ImportFrom) for one in nodes):
        return False
    if any(isinstance(one, _LATER) for one in nodes):
        return False
    if any(isinstance(one, ast.Name) and one.id in _BY_NAME for one in nodes):
        return False
    texts = [one for each in _body(function) for one in walked(each) if isinstance(one, ast.Constant | ast.JoinedStr)]
    if any(one.end_lineno != one.lineno for one in texts):
        return False  # another indentation would change a text of several lines
    returns = [one for one in nodes if isinstance(one, ast.Return)]
    only_returns = isinstance(_body(function)[0], ast.Return) if _body(function) else True
    return not only_returns and returns in ([], function.body[-1:])


def _body(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1:] if documented else function.body


def _bound(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function binds: its parameters, and what its statements assign, import, define or catch."""
    found = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for one in (each for statement in function.body for each in walked(statement)):
        match one:
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)) | ast.ClassDef(name=str(name)):
                found.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.MatchMapping(rest=str(name)):
                found.add(name)
    return found | {one.id for one in names_in(function) if isinstance(one.ctx, ast.Store)}


def _of_the_file(module: ast.Module) -> set[str]:
    """Return the names that the top-level statements of a file bind. A function's body may mean them."""
    inside = {one for each in module.body if isinstance(each, ast.FunctionDef) for one in walked(each)}
    stored = {
        one.id
        for one in walked(module)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one not in inside
    }
    named = {one.name for one in module.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    imported = {one.asname or one.name.partition(".")[0] for one in walked(module) if isinstance(one, ast.alias)}
    return stored | named | imported


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the simple statements of a body and of the loops and branches in it, in order."""
    for one in body:
        if isinstance(one, ast.For | ast.If):
            yield from _statements(one.body)
            yield from _statements(one.orelse)
        elif isinstance(one, ast.Expr | ast.Assign | ast.Return):
            yield one


def _first_call(
    statement: ast.stmt, functions: Mapping[str, ast.FunctionDef], bound: Collection[str], counted: Collection[str]
) -> ast.Call | None:
    """Return the call of one of ``functions`` that a statement runs first, if nothing that has an effect runs before
    it. ``bound`` has the names that the caller binds, ``counted`` those that are numbers of its loops.
    """
    node = getattr(statement, "value", None)
    inner: ast.Call | None = None
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in functions:
            inner = node
        elif not _is_steady(node.func):
            return inner
        given = [*node.args, *(one.value for one in node.keywords)]
        calls = [one for one in given if any(isinstance(each, ast.Call) for each in walked(one))]
        others = [one for one in calls if _called(one, functions)]
        if not others:
            return inner
        before = given[: given.index(others[0])]
        if any(not _is_steady(one) for one in before):
            return None
        method = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        fixed = all(_is_fixed(one, bound) for one in (before if method else [node.func, *before]))
        if not fixed and not _is_quiet(others[0], functions):
            return None  # the function may change what these expressions read
        if any(one.id not in counted for each in before for one in _in_arithmetic(each)):
            return None  # the function may write a tile of which the arithmetic makes another one
        node = others[0]
    return inner


def _counted(function: ast.FunctionDef) -> set[str]:
    """Return the names that only loops over numbers bind, such as ``t`` in ``for t in nl.affine_range(4)``."""
    stores = Counter(one.id for one in names_in(function) if isinstance(one.ctx, ast.Store))
    loops = Counter(
        one.target.id
        for one in walked(function)
        if isinstance(one, ast.For) and isinstance(one.target, ast.Name) and _is_range(one.iter)
    )
    given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return {name for name, count in loops.items() if stores[name] == count and name not in given}


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called(node.func) in LOOPS


def _in_arithmetic(node: ast.AST, *, inside: bool = False) -> Iterator[ast.Name]:
    """Yield the names with which an expression computes, except in the bounds of slices, which are numbers."""
    if isinstance(node, ast.Name) and inside:
        yield node
    if not isinstance(node, ast.Slice):
        for one in ast.iter_child_nodes(node):
            yield from _in_arithmetic(one, inside=inside or isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare))


def _is_quiet(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Tell whether the calls of ``functions`` in ``node`` change no list, dictionary or object of Python."""
    left = _called(node, functions)
    for one in left:
        known = (NO_TILES | _PURE | functions.keys()) - _bound(functions[one])
        for each in (inside for statement in functions[one].body for inside in walked(statement)):
            if isinstance(each, ast.AugAssign):
                return False
            if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
                return False
            if isinstance(each, ast.Call) and root(each.func) not in known:
                return False
        left += [name for name in _called(functions[one], functions) if name not in left]
    return True


def _called(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the names of those of ``functions`` that ``node`` calls, once each."""
    return list(dict.fromkeys(one.id for one in uncached_names_in(node) if one.id in functions))


def _is_steady(node: ast.AST) -> bool:
    """Tell whether an expression has no effect, and the same value whenever it is evaluated in the statement."""
    return all(isinstance(one, _STEADY) for one in walked(node))


def _is_fixed(node: ast.expr, bound: Collection[str]) -> bool:
    """Tell whether an argument may stand wherever the function uses its parameter: a name, a constant, or an attribute of a
    library, such as ``nl.float32``. A name in ``bound``, which has the names of the caller, is no library.
    """
    libraries = NO_TILES.difference(bound)
    return isinstance(node, ast.Name | ast.Constant) or (isinstance(node, ast.Attribute) and root(node) in libraries)


def _written_out(
    text: SourceText, caller: ast.FunctionDef, statement: ast.stmt, call: ast.Call, function: ast.FunctionDef
) -> list[tuple[str, int]] | None:
    """Return the lines that do what ``statement`` does, with the body of ``function`` in place of ``call``, each with its
    line in the function, or 0. Return None if the call can not be written out.
    """
    given = call_arguments(function, call)
    if given is None or not all(is_alone(text, one) for one in function.body):
        return None
    indent = text.indentation(text.span(statement)[0])
    taken = {one.id for one in uncached_names_in(parsed(text.source))} | _bound(caller) | _bound(function)
    own = {one.id for one in uncached_names_in(function) if isinstance(one.ctx, ast.Store)}
    parameters = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    here = {one.id for one in uncached_names_in(caller)} | _bound(caller) | _of_the_file(parsed(text.source))
    free = {one.id for one in uncached_names_in(function)} - own - parameters
    if free & _bound(caller):
        return None  # the function means a name of the file, and the caller has another one
    if _in_comprehensions(function) & (_of_the_file(parsed(text.source)) | set(dir(builtins))):
        return None  # beside the comprehension the function may mean the name of the file
    names: dict[str, str] = {}
    lines: list[str] = []
    for name, value in (given[0] | given[1]).items():
        written = text.source[slice(*text.span(value))]
        if "\n" in written:
            written = ast.unparse(value)
        if name not in own and _is_fixed(value, _bound(caller)):
            names[name] = written
        else:
            names[name] = name if name not in here else new_name(name, taken)
            lines.append(f"{indent}{names[name]} = {written}")
    last = function.body[-1]
    returned = last.value if isinstance(last, ast.Return) else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    shared = _shared_names(caller, statement, call, target, returned, own - parameters, lines)
    names |= shared
    for name in sorted(own - parameters - shared.keys()):
        names[name] = name if name not in here else new_name(name, taken)
    statements = _body(function) if returned is None and not isinstance(last, ast.Return) else _body(function)[:-1]
    body = _body_lines(text, statements, names, indent)
    written_out = [*((line, 0) for line in lines), *body] or [(f"{indent}pass", 0)]
    if call is getattr(statement, "value", None) and shared and target is not None:
        return written_out
    result = "None" if returned is None else _text_of(text, returned, names)
    if isinstance(statement, ast.Expr) and statement.value is call and (returned is None or _is_steady(returned)):
        return written_out
    start, end = text.span(statement)
    first, behind = text.span(call)
    plain = isinstance(returned, ast.Name | ast.Constant) or returned is None
    rest = f"{text.source[start:first]}{result if plain else f'({result})'}{text.source[behind:end]}"
    return [*((line, 0) for line in lines), *body, *((line, 0) for line in (indent + rest).split("\n"))]


def _in_comprehensions(function: ast.FunctionDef) -> set[str]:
    """Return the names that the comprehensions of a function bind."""
    loops = [one for one in walked(function) if isinstance(one, ast.comprehension)]
    return {name.id for one in loops for name in uncached_names_in(one.target)}


def _shared_names(
    caller: ast.FunctionDef,
    statement: ast.stmt,
    call: ast.Call,
    target: ast.expr | None,
    returned: ast.expr | None,
    own: set[str],
    before: Sequence[str],
) -> dict[str, str]:
    """Return the function's names that may take the names to which ``statement`` assigns the results; {} if one of them
    may not.
    """
    if not isinstance(statement, ast.Assign) or statement.value is not call or target is None or returned is None:
        return {}
    if any(isinstance(one, _LATER) for each in caller.body for one in walked(each)):
        return {}  # the function may run code that reads what the names held before
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    results = returned.elts if isinstance(returned, ast.Tuple) else [returned]
    if len(targets) != len(results) or isinstance(target, ast.Tuple) != isinstance(returned, ast.Tuple):
        return {}
    found: dict[str, str] = {}
    read = {one.id for one in names_in(call)} | {line.split(" = ")[0].strip() for line in before}
    for one, result in zip(targets, results, strict=True):
        if not isinstance(one, ast.Name) or not isinstance(result, ast.Name) or result.id not in own:
            return {}
        if one.id in read or one.id in found.values() or result.id in found:
            return {}
        found[result.id] = one.id
    return found


def _body_lines(
    text: SourceText, statements: Sequence[ast.stmt], names: Mapping[str, str], indent: str
) -> list[tuple[str, int]]:
    """Return the lines of statements, comments included, with other names and another indentation, each with its number."""
    if not statements:
        return []
    start = text.line_start(text.span(statements[0])[0])
    end = text.after_line(text.span(statements[-1])[1])
    edits = Edits(text.source)
    for statement in statements:
        _rename(text, edits, statement, names)
    lines = edits.apply_around(start, end)[1].rstrip("\n").split("\n")
    cut = len(text.indentation(text.span(statements[0])[0]))
    moved = [
        indent + line[cut:] if line[:cut].isspace() else line.lstrip() and indent + line.lstrip() for line in lines
    ]
    return [(line, number) for number, line in enumerate(moved, text.line(start))]


def _rename(text: SourceText, edits: Edits, node: ast.AST, names: Mapping[str, str]) -> None:
    """Add to ``edits`` the new text of each name in ``node``."""
    if isinstance(node, ast.JoinedStr):
        if any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node)):
            edits.replace(*text.span(node), ast.unparse(_Renamed(names).visit(deepcopy(node))))
        return
    if isinstance(node, ast.Name) and names.get(node.id, node.id) != node.id:
        edits.replace(*text.span(node), names[node.id])
    for child in ast.iter_child_nodes(node):
        _rename(text, edits, child, names)


def _text_of(text: SourceText, node: ast.expr, names: Mapping[str, str]) -> str:
    edits = Edits(text.source)
    _rename(text, edits, node, names)
    return edits.apply_around(*text.span(node))[1]


class _Renamed(ast.NodeTransformer):
    """Replace names in a syntax tree by the expressions in ``names``."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names:
            return node
        (statement,) = parse(self._names[node.id]).body
        assert isinstance(statement, ast.Expr), "the text of an argument, or a name"
        return statement.value
