"""Run a kernel's Python once, without data, and return its Program.

The source is compiled under the given file name, so that errors name lines of the kernel. The process that traces also
runs the kernel's code, so its Program is not trusted: the judge decodes and verifies the Program again.
"""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import inspect
import itertools
import re
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from acceld import parsing
from acceld.chips import API_CHIPS, chip_spec, chips_of
from acceld.errors import AcceldError, UsageError, did_you_mean, nearest_of
from acceld.nki.entry import entry_in, parse
from acceld.nki.errors import KernelCrash, KernelFailure, LimitExceeded
from acceld.nki.frontend.guarded import Guard
from acceld.nki.frontend.permitted import METHODS
from acceld.nki.frontend.protocol import IS, PLAIN, WHILE, FrontEnd
from acceld.nki.frontend.session import PACKAGE, Call, LaunchedWhileLoading, Session, TraceOptions
from acceld.nki.frontend.shims import imports
from acceld.nki.frontend.tracing_types import Argument, TensorSpec
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Notice, Program
from acceld.parsing import module_statements

MODULE_NAME = "acceld_traced_kernel"
MOST_NAMES = 2000
"""Greatest number of names among which the nearest to a misspelt name is sought."""


def trace(
    source: str,
    arguments: Sequence[Argument] | Mapping[str, Argument],
    *,
    filename: str = "kernel.py",
    entry: str | None = None,
    grid: tuple[int, ...] = (),
    lnc: int = 1,
    api: str = "nki_legacy",
    chip: str = "trn1",
    options: TraceOptions = TraceOptions(),  # noqa: B008  # frozen
) -> Program:
    """Return the Program of the kernel in ``source`` for the given shapes and values of arguments.

    ``entry`` names the kernel function; if it is None, the rules of
    :func:`acceld.nki.entry.find_entry` decide.

    Raise UsageError for arguments that do not fit the API, the chip or the function. For a kernel that can not
    be traced, raise UnsupportedCall, LegalityError, KernelCrash or LimitExceeded with the kernel's line.
    """
    check_target(api, chip, lnc)
    tree = parse(source, filename)
    name = entry_in(tree, entry)
    session = Session(filename, api, chip, tuple(grid), lnc, options, name, time.thread_time() + options.deadline_s)
    front_end = _front_end(api, session)
    try:
        loops = {name: one for name, one in front_end.statements.items() if name == WHILE}
        with (
            imports(session, front_end.modules(), front_end.roots, _with_loops if loops else None, loops),
            _deadline(session),
        ):
            program, notices = _traced(tree, source, session, front_end, arguments)
    except _Expired:
        session.deadline = 0.0
        session.check_deadline()
        raise
    # Each load of the kernel's file repeats its notices, and a kernel that is traced again is loaded again.
    return replace(program, notices=tuple(dict.fromkeys((*notices, *program.notices)))) if notices else program


def _traced(
    tree: ast.Module,
    source: str,
    session: Session,
    front_end: FrontEnd,
    arguments: Sequence[Argument] | Mapping[str, Argument],
) -> tuple[Program, tuple[Notice, ...]]:
    """Load the kernel's file and run the kernel. Return its Program and the notices of loading. ``tree`` is
    changed.

    Every error of the kernel is raised as a KernelFailure with the kernel's line.
    """
    filename = session.filename
    try:
        front_end.read(tree)
        module, notices = _load(tree, source, session, front_end)
        function = _entry_of(module, session.entry)
        session.reload = lambda: _entry_of(_loaded_again(source, session, front_end), session.entry)
        noted = tuple(session.builder.notices)  # keep the notices, because the front end starts with a new builder
        return front_end.run(function, _named(function, arguments)), (*noted, *notices)
    except KernelFailure as failure:
        if not failure.line:
            failure.line = session.last_line or _line_of(failure.__traceback__, filename)
        place = _place_of(failure.__traceback__, session)
        if place:
            failure.message = f"{failure.message} ({place})"
        raise
    except (AcceldError, KeyboardInterrupt, _Expired):
        raise
    except MemoryError as error:
        raise LimitExceeded(
            "the kernel's Python ran out of memory while it was traced",
            rule="memory",
            line=_line_of(error.__traceback__, filename),
            hint="make no large Python or numpy arrays: a trace needs shapes only",
        ) from error
    except RecursionError as error:
        raise LimitExceeded(
            "the kernel's Python calls itself too deeply",
            rule="recursion",
            line=_line_of(error.__traceback__, filename),
            hint="end the recursion earlier, or write a loop",
        ) from error
    except BaseException as error:  # a kernel may raise anything, SystemExit too
        line, place = _line_of(error.__traceback__, filename), _place_of(error.__traceback__, session)
        said = (
            _no_member(error)
            or str(error)
            or ("" if place or not isinstance(error, AssertionError) else _asserted(source, line))
        )
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
        text = f"{text[:2000]} ({place})" if place else text[:2000]
        without = session.left_out.get(error.name or "", "") if isinstance(error, NameError) else ""
        raise KernelCrash(text, rule="exception", line=line, hint=without or _meant(error)) from error
    finally:
        session.running = False


def _no_member(error: BaseException) -> str:
    """Return a sentence for an error about a member that an enumeration lacks, such as ``nisa.engine.fast``; empty for
    any other error.

    Python's own message is the name alone.
    """
    if not isinstance(error, AttributeError):
        return ""
    kind = error.obj
    if not isinstance(kind, type) or not issubclass(kind, Enum):
        return ""
    return f"there is no {error.name!r} among {', '.join(kind.__members__)}"


def check_target(api: str, chip: str, lnc: int) -> None:
    """Raise UsageError if the API does not compile for the chip, or if the chip has no logical cores of ``lnc``
    physical cores.
    """
    if api not in API_CHIPS:
        raise UsageError(
            f"there is no API {api!r}",
            hint=f"use one of {', '.join(API_CHIPS)}. {did_you_mean(api, API_CHIPS)}".strip(),
        )
    if chip not in chips_of(api):
        others = [name for name in API_CHIPS if chip in chips_of(name)]
        hint = f"for {chip} use API {' or '.join(others)}" if others else ""
        raise UsageError(
            f"API {api} does not compile for chip {chip}, but for {' and '.join(chips_of(api))}", hint=hint
        )
    if lnc not in (1, 2) or (lnc == 2 and chip_spec(chip).generation < 3):
        raise UsageError(
            f"{chip} has no logical cores of {lnc} physical cores (lnc {lnc})",
            hint="use lnc 1 on trn1, 1 or 2 on later chips",
        )


_ASKING = {"isinstance": {2}, "type": {1}, "hasattr": {2}, "getattr": {2, 3}}
"""Python's functions whose answer depends on an object's type, with the numbers of arguments that they may have."""
_READ = METHODS | {"__name__"}
"""Attributes between underscores that say nothing about an object's type."""
_ASKING_OF_NUMPY = frozenset({"isscalar", "iterable"})
"""Functions of numpy whose answer depends on an object's type."""
_REACHING = frozenset(
    "__import__ __builtins__ open input seterr geterr errstate seterrcall geterrcall setbufsize getbufsize set_printoptions "
    "get_printoptions printoptions is_ is_not setattr delattr vars globals locals dir methodcaller attrgetter access declared "
    "overrun produced siblings no_operator dtype_name".split()
)
"""Names of functions of Python and numpy that keep something from one call to the next, reach what does, or compare objects by
identity; and attributes of the simulator's tiles, which no chip's compiler has and which may count tiles.
"""
_KEEPING_NOTHING = frozenset(
    "abc collections copy dataclasses enum functools itertools math cmath numbers operator string textwrap typing __future__".split()
)
"""Modules of Python whose functions keep nothing from one call to the next."""


def _held(names: Mapping[str, object]) -> frozenset[str]:
    """Return those of ``names`` that stand for a module or a container. A kernel could keep values in either, which
    snapshots do not compare.
    """
    kinds = (ModuleType, list, dict, set, collections.deque)
    return frozenset(name for name, one in names.items() if isinstance(one, kinds) and not name.startswith("__"))


_HELD = {
    name: _held(vars(importlib.import_module(name))) for name in (*sorted(_KEEPING_NOTHING - {"__future__"}), "numpy")
}
"""Names of the modules and containers that modules hold which a kernel may use, by module."""
_HELD["numpy"] |= frozenset(getattr(np, "__numpy_submodules__", ()))
_HELD_BY_CLASSES = frozenset[str]().union(
    *(_held(vars(one)) for name in _HELD for one in vars(sys.modules[name]).values() if isinstance(one, type))
)
"""Names of the containers that the classes of those modules hold."""
_ALL_HELD = _HELD_BY_CLASSES.union(*_HELD.values())
_REACHING_WORDS = re.compile(
    rf"\b(?:{'|'.join((*_REACHING, *_ALL_HELD, 'getattr', 'hasattr'))})\b"
    rf"|\b(?:import|from)\s+(?!(?:{'|'.join(_KEEPING_NOTHING)}|numpy|ml_dtypes|nki|neuronxcc)\b)|^\s*import\b.*,",
    re.MULTILINE,
)
"""Matches in each file that :func:`_reaches_beyond` has to read."""
_ASKING_WORDS = re.compile(rf"\b(?:{'|'.join((*_ASKING, *_ASKING_OF_NUMPY, 'match', 'is'))})\b|\.\s*__")
"""Matches a word without which a file asks for no object's type. Python reads some other letters as these (NFKC), so
the words decide only in a file of ASCII.
"""
_STATEMENT_WORDS = re.compile(rf"\b(?:while|is|mask)\b|{_ASKING_WORDS.pattern}")
"""Matches a word without which :class:`_Statements` rewrites nothing in a file of ASCII."""


_SEES_ALL_WORDS = re.compile(r"\b(?:locals|vars|dir|eval|exec)\b")
"""Matches a word without which a function of an ASCII file reads only the variables that it names."""
_Node = TypeVar("_Node", bound=ast.AST)


def _placed(new: _Node, old: ast.AST) -> _Node:
    """Return ``new`` with the position of ``old`` in the file. Parts of ``new`` without a position get the same one."""
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _plain(value: ast.expr, *options: ast.expr) -> ast.expr:
    """Return the expression to write in place of ``value``, of which a kernel asks the type."""
    return _placed(ast.Call(ast.Name(PLAIN, ast.Load()), [value, *options], []), value)


def _asks(node: ast.AST) -> bool:
    """Tell whether ``node`` is a call of a function in :data:`_ASKING`, which asks for an object's type.

    Only a call by the function's own name counts, with positional arguments alone, and as many of them as the function
    takes.
    """
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and len(node.args) in _ASKING.get(node.func.id, ())
        and not node.keywords
        and not any(isinstance(one, ast.Starred) for one in node.args)
    )


def _asks_otherwise(tree: ast.Module, source: str) -> bool:
    """Tell whether a file may ask for the type of a loop's index in a way that is not rewritten.

    There are five such ways: a use of a function of :data:`_ASKING` other than a plain call, a function of
    :data:`_ASKING_OF_NUMPY`, a class pattern inside of another pattern, ``is`` in a chain of comparisons, and an
    attribute that every object has, such as ``__class__``. ``source`` is the text of ``tree``. It is searched for the
    words of these ways first, because most files have none of them.
    """
    if source.isascii() and not _ASKING_WORDS.search(source):
        return False
    nodes = list(ast.walk(tree))
    plain = {id(node.func) for node in nodes if isinstance(node, ast.Call) and _asks(node)}
    plain |= {
        id(node.pattern)
        for node in nodes
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchClass)
    }
    for node in nodes:
        if id(node) in plain or isinstance(node, ast.Constant):
            continue
        words = [value for _, value in ast.iter_fields(node) if isinstance(value, str)]
        if isinstance(node, ast.MatchClass) or any(one in _ASKING or one in _ASKING_OF_NUMPY for one in words):
            return True
        if isinstance(node, ast.Attribute) and (
            node.attr.startswith("__") and (node.attr not in _READ or not isinstance(node.ctx, ast.Load))
        ):
            return True
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) > 1
            and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        ):
            return True
    return False


def _reaches_beyond(tree: ast.Module, source: str) -> bool:
    """Tell whether a file may keep values where snapshots do not compare them from one iteration of a loop to the
    next.

    Such places are modules of Python that keep something (the recursion limit of ``sys``), files, numpy's settings,
    modules and containers that a library's module holds, and attributes that are not written by their own names.
    ``source`` is the text of ``tree``.
    """
    text = source if source.isascii() else unicodedata.normalize("NFKC", source)
    if not _REACHING_WORDS.search(text):
        return False
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return any(_node_reaches(node, modules) for node in ast.walk(tree))


def _node_reaches(node: ast.AST, modules: Mapping[str, str]) -> bool:
    """Tell whether one node of a file may reach such a place. ``modules`` has the file's names of modules."""
    match node:
        case ast.Import(names=names):
            return any(_keeps(one.name) for one in names)
        case ast.ImportFrom(module=str(name), names=names, level=0):
            return _keeps(name) or any(one.name in _REACHING | _HELD.get(name, frozenset()) for one in names)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in _HELD.get(modules.get(owner, ""), ()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _REACHING | _HELD_BY_CLASSES
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name.startswith("_") or name in _REACHING | _ALL_HELD
        case ast.Call(func=ast.Name(id="getattr" | "hasattr")):
            return True
    return False


def _keeps(name: str) -> bool:
    """Tell whether the module ``name`` of Python may keep something from one call to the next."""
    return name.partition(".")[0] in sys.stdlib_module_names - _KEEPING_NOTHING


class _Loops(ast.NodeTransformer):
    """Rewrite ``while x`` as a loop over a call of the front end, whose name is :data:`WHILE`."""

    def visit_While(self, node: ast.While) -> ast.stmt:  # ast's name
        self.generic_visit(node)
        if not isinstance(node.test, ast.Name | ast.Attribute):
            return node
        nothing = ast.arguments([], [], None, [], [], None, [])
        trips = ast.Call(ast.Name(WHILE, ast.Load()), [ast.Lambda(nothing, node.test)], [])
        return _placed(ast.For(ast.Name(f"{WHILE}trip", ast.Store()), trips, node.body, node.orelse), node)


def _with_loops(source: str, filename: str) -> CodeType | None:
    """Return the code of a module that a kernel imports from its own folder, with ``while x`` rewritten; None if the module
    has no such statement.
    """
    if source.isascii() and "while" not in source:
        return None
    return compile(_Loops().visit(parsing.parse(source, filename)), filename, "exec", dont_inherit=True)


class _Statements(_Loops):
    """Rewrite Python statements to which the API's compilers give another meaning.

    The comparisons of a ``mask=`` argument are joined with ``&``, because compilers accept ``and`` and chained
    comparisons there. ``while x`` and ``x is y`` become calls of functions of the front end. A value whose type the
    kernel asks for, as by ``isinstance``, passes through such a function too. Each rewrite is made only if ``names``
    has its function.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def visit_While(self, node: ast.While) -> ast.stmt:  # ast's name
        if WHILE in self.names:
            return super().visit_While(node)
        self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:  # ast's name
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        asks = IS in self.names and len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot)
        if not asks or any(isinstance(side, ast.Constant) and type(side.value) is not int for side in sides):
            return node
        asked = _placed(ast.Call(ast.Name(IS, ast.Load()), sides, []), node)
        return asked if isinstance(node.ops[0], ast.Is) else _placed(ast.UnaryOp(ast.Not(), asked), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:  # ast's name
        self.generic_visit(node)
        if PLAIN in self.names and _asks(node):
            whole = (
                [ast.Constant(True)] if cast("ast.Name", node.func).id == "getattr" else []
            )  # it may tell the number
            node.args[0] = _plain(node.args[0], *whole)
        return node

    def visit_Match(self, node: ast.Match) -> ast.stmt:  # ast's name
        self.generic_visit(node)
        if PLAIN in self.names and any(isinstance(case.pattern, ast.MatchClass) for case in node.cases):
            node.subject = _plain(node.subject, ast.Constant(True))
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg == "mask":
            node.value = _joined(node.value)
        return node


def _joined(value: ast.expr) -> ast.expr:
    """Return the condition of a mask with ``and`` and chained comparisons replaced by comparisons joined with
    ``&``.
    """
    parts: list[ast.expr] = []
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
        parts = [_joined(one) for one in value.values]
    elif isinstance(value, ast.Compare) and len(value.ops) > 1:
        sides = itertools.pairwise([value.left, *value.comparators])
        parts = [ast.Compare(left, [op], [right]) for (left, right), op in zip(sides, value.ops, strict=True)]
    if not parts:
        return value
    return _placed(functools.reduce(lambda one, other: ast.BinOp(one, ast.BitAnd(), other), parts), value)


def _front_end(api: str, session: Session) -> FrontEnd:
    if api == "nki":
        from acceld.nki.frontend.current.frontend import CurrentFrontEnd

        made: FrontEnd = CurrentFrontEnd(session)
        return made
    from acceld.nki.frontend.legacy.frontend import LegacyFrontEnd

    return LegacyFrontEnd(session)


def _load(
    tree: ast.Module, source: str, session: Session, front_end: FrontEnd
) -> tuple[ModuleType, tuple[Notice, ...]]:
    """Execute the kernel's file as a module that is not ``__main__``. Return the module and the notices.
    ``tree`` is the parsed ``source``, and is changed.
    """
    filename = session.filename
    session.bare = not any(isinstance(node, ast.Import | ast.ImportFrom) for node in module_statements(tree.body))
    module = _fresh_module(session, front_end)
    notices: tuple[Notice, ...] = ()
    if session.bare:
        notices = (Notice(1, "the file imports nothing: np, nki, nl, nt, nisa, trace and par_dim are provided"),)
    sys.modules[MODULE_NAME] = module
    try:
        module.__dict__.update(front_end.statements)
        session.samples = not (_asks_otherwise(tree, source) or _reaches_beyond(tree, source))
        session.sees_all = not source.isascii() or _SEES_ALL_WORDS.search(source) is not None
        read = tree
        if not source.isascii() or _STATEMENT_WORDS.search(source):
            read = _Statements(front_end.statements).visit(tree)
        if session.options.permitted is not None:
            guard = Guard(session.options.permitted, session, MODULE_NAME)
            read = guard.rewritten(read)
            module.__dict__.update(guard.names())
        notices = (*notices, *_executed(read, module, session))
    except LaunchedWhileLoading as launched:
        line = _line_of(launched.__traceback__, filename)
        notices = (
            *notices,
            Notice(line, "the file launches a kernel here when it is loaded; the rest is not executed"),
        )
    finally:
        sys.modules.pop(MODULE_NAME, None)
    return module, notices


def _fresh_module(session: Session, front_end: FrontEnd) -> ModuleType:
    """Return a module for the kernel's file, before its statements are executed."""
    module = ModuleType(MODULE_NAME)
    module.__file__ = session.filename
    if session.options.source_root is not None:
        module.__package__ = _package(Path(session.filename), session.options.source_root)
    if session.bare:
        exec(compile(front_end.prelude, "<prelude>", "exec"), module.__dict__)  # noqa: S102  # our own lines
    return module


def _loaded_again(source: str, session: Session, front_end: FrontEnd) -> ModuleType:
    """Execute the kernel's file in a fresh module, and return the module. A file that ran to its end is not parsed and
    compiled again.
    """
    if session.code is None:
        return _load(parse(source, session.filename), source, session, front_end)[0]
    module = _fresh_module(session, front_end)
    sys.modules[MODULE_NAME] = module
    try:
        module.__dict__.update(front_end.statements)
        if session.options.permitted is not None:
            module.__dict__.update(Guard(session.options.permitted, session, MODULE_NAME).names())
        exec(session.code, module.__dict__)  # noqa: S102  # as in _executed
    finally:
        sys.modules.pop(MODULE_NAME, None)
    return module


def _executed(tree: ast.Module, module: ModuleType, session: Session) -> tuple[Notice, ...]:
    """Execute the statements of the kernel's file in ``module``. Return notices about statements that were left out.

    A statement may fail in this process alone, because it asks for a file, which the sandbox does not have, or
    because a package is missing. If such a statement stands before the kernel, only the statement is left out; if it
    stands behind the kernel, the rest of the file is left out too. Any other exception is raised. If the kernel is
    not defined in the end, the exception of the first statement that failed is raised.
    """
    filename, entry = session.filename, session.entry.partition(".")[0]
    future = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    left, failed, notices = tree.body, None, list[Notice]()
    while True:
        part = tree if left is tree.body else ast.Module([*future, *left], tree.type_ignores)
        try:
            code = compile(part, filename, "exec")
            exec(code, module.__dict__)  # noqa: S102  # running a kernel's file is the purpose
        except (KernelFailure, LaunchedWhileLoading, AcceldError, MemoryError, RecursionError):
            raise
        except Exception as error:
            if not session.missing and not isinstance(error, OSError):
                raise
            failed = failed or error
            line = _line_of(error.__traceback__, filename)
            place = next((at for at, one in enumerate(left) if one.lineno <= line <= (one.end_lineno or line)), None)
            if place is None or _is_inside(left[place], line):
                raise  # a function of the file may have changed anything
            known = entry in module.__dict__
            why = f" without {' and '.join(sorted(session.missing))}" if session.missing else ""
            rest = "the rest is not executed" if known else "the statement is left out"
            notices.append(Notice(line, f"the file fails here{why} ({type(error).__name__}: {error}); {rest}"))
            if not known:
                reason = (
                    f"line {line}, which gives this name its value, fails here{why}: {type(error).__name__}: {error}"
                )
                for name in _changed_by(left[place], module):
                    session.left_out[name] = reason
                    module.__dict__.pop(name, None)  # its value from before is not the one that the file means
                left = left[place + 1 :]
                continue
        if failed is not None and entry not in module.__dict__:
            raise failed
        if not notices:
            session.code = code
        return tuple(notices)


def _is_inside(statement: ast.stmt, line: int) -> bool:
    """Tell whether a line belongs to the body of a function that a statement defines."""
    return isinstance(statement, ast.FunctionDef) and line >= statement.body[0].lineno


def _changed_by(statement: ast.stmt, module: ModuleType) -> set[str]:
    """Return the names that a statement of a file binds, and the names of objects that the statement may change: it
    sets an item or calls a method of them.

    Modules, functions and classes do not count as such objects.
    """
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    found = set[str]()
    for one in ast.walk(statement):
        match one:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.partition(".")[0])
            case (
                ast.Subscript(value=owner, ctx=ast.Store())
                | ast.Attribute(value=owner, ctx=ast.Store())
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=owner)))
            ):
                while isinstance(owner, ast.Subscript | ast.Attribute):
                    owner = owner.value
                if isinstance(owner, ast.Name):
                    value = module.__dict__.get(owner.id)
                    found |= set() if isinstance(value, ModuleType) or callable(value) else {owner.id}
    return found


def _package(file: Path, root: Path) -> str:
    """Return the package of a file below ``root``, for Python's relative imports. The result is empty for a file
    directly in ``root``, or outside of it.
    """
    inside = file.relative_to(root) if file.is_relative_to(root) else file
    return "" if inside.is_absolute() else ".".join(inside.parent.parts)


def _entry_of(module: ModuleType, name: str) -> Any:
    """Return the kernel function ``name`` of a loaded module. Raise UsageError if ``name`` is not a function of the
    module.
    """
    first, *rest = name.split(".")
    function: Any = module.__dict__.get(first)
    for part in rest:  # Class.name
        function = getattr(function, part, None)
    if not callable(function):
        raise UsageError(
            f"{name} is not a function after the file is loaded: assign a function to that name, or name another entry"
        )
    return function


def _named(function: Any, arguments: Sequence[Argument] | Mapping[str, Argument]) -> dict[str, object]:
    """Return the arguments by parameter name. Raise UsageError if they do not fit the function's signature."""
    target = inspect.unwrap(function)
    for name, value in arguments.items() if isinstance(arguments, Mapping) else enumerate(arguments, 1):
        if isinstance(value, TensorSpec) and 0 in value.shape:
            raise UsageError(
                f"argument {name} of shape {value.shape} has no elements", hint="make every dimension at least 1"
            )
        if isinstance(value, TensorSpec) and value.dtype not in DTYPE_BYTES:
            raise UsageError(
                f"argument {name} has the unknown dtype {value.dtype!r}", hint=nearest_of(value.dtype, DTYPE_BYTES)
            )
    signature = inspect.signature(target)
    try:
        bound = signature.bind(**arguments) if isinstance(arguments, Mapping) else signature.bind(*arguments)
    except TypeError as error:
        raise UsageError(
            f"the arguments do not fit {getattr(target, '__name__', 'the kernel')}{signature}: {error}",
            hint=f"pass one for each parameter without a default; {len(arguments)} are given",
        ) from error
    named: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named |= {f"{name}{k}": one for k, one in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        else:
            named[name] = value
    return named


def _meant(error: BaseException) -> str:
    """Return a hint that names the nearest existing name, for an error about a misspelt name or attribute. The hint is
    empty for other errors.
    """
    if type(error) is NameError:
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        frame = at.tb_frame if at is not None else None
        known: list[object] = [*frame.f_locals, *frame.f_globals, *frame.f_builtins] if frame is not None else []
    elif type(error) is AttributeError and error.obj is not None:
        kind = type(error.obj)
        known = [*type.__dir__(kind)]
        if (
            kind.__module__ == MODULE_NAME
        ):  # attributes set by the class's methods; those of the simulator's objects stay hidden
            known = [*getattr(error.obj, "__dict__", ()), *known]
    else:
        return ""
    names = [one for one in known[:MOST_NAMES] if isinstance(one, str) and not one.startswith("_")]
    return did_you_mean(error.name, names) if isinstance(error.name, str) else ""


def _line_of(traceback: TracebackType | None, filename: str) -> int:
    """Return the innermost line of the kernel's file in a traceback; 0 if the file is not in it."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _asserted(source: str, line: int) -> str:
    """Return the condition of the ``assert`` statement on a line of the kernel's file; empty if the line has no
    ``assert``.
    """
    for node in ast.walk(parse(source, "kernel.py")):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or node.lineno):
            return ast.unparse(node.test)
    return ""


def _place_of(traceback: TracebackType | None, session: Session) -> str:
    """Return, as text, the calls in files other than the kernel's own that led to an error, innermost first. The
    text is empty if there are no such calls.
    """
    calls: list[Call] = []
    inside = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == session.filename:
            calls, inside = [], True
        elif inside and not code.co_filename.startswith(PACKAGE):
            calls.append((code.co_filename, code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return session.named(tuple(reversed(calls))) if calls else ""


class _Expired(BaseException):
    """Raised to stop a kernel that has run past its deadline.

    It is a BaseException, so that a kernel's ``except Exception`` does not catch it.
    """


@contextmanager
def _deadline(session: Session) -> Iterator[None]:
    """For the time of a ``with`` block, interrupt the kernel if its Python code runs past the deadline without
    calling the simulator.

    Signals reach the main thread only. In other threads nothing interrupts such code.
    """
    usable = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not usable:
        yield
        return

    active = True

    def expire(number: int, frame: FrameType | None) -> None:
        if not active or time.thread_time() < session.deadline:
            return
        while frame is not None and frame.f_code.co_filename != session.filename:
            frame = frame.f_back
        if frame is None:  # the kernel is not running now; the next tick looks again
            return
        session.last_line = frame.f_lineno
        raise _Expired

    started = time.monotonic()
    previous = signal.signal(signal.SIGALRM, expire)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, max(0.001, session.options.deadline_s), 0.1)
    try:
        yield
    finally:
        active = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if delay:  # restart the caller's own timer
            signal.setitimer(signal.ITIMER_REAL, max(0.001, delay - (time.monotonic() - started)), interval)


__all__ = ["Argument", "TensorSpec", "TraceOptions", "check_target", "trace"]
