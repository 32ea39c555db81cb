"""Rewrite a legacy kernel's file for the current API. Only the lines of changed statements are replaced."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acceld.nki.port.blocks import BlockTensor, block_tensors
from acceld.nki.port.facts import Facts
from acceld.nki.port.names import MODULES, Names
from acceld.nki.port.translate import Function
from acceld.nki.port.values import Unportable, call
from acceld.parsing import parse

WIDTH = 110
IMPORTS = ("import nki", "import nki.isa as nisa", "import nki.language as nl")


@dataclass(frozen=True, slots=True)
class Unported:
    """A note about one construct: its line in the original, the reason, and what to write instead.

    The port leaves such a construct as it is, or wants the reader to look at it.
    """

    line: int
    message: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Ported:
    """The result of a port: the new text, the constructs that were not rewritten, and notes on changes that a reader
    should know.
    """

    text: str
    findings: tuple[Unported, ...]
    notes: tuple[Unported, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines that replace the lines ``first`` to ``last`` of the original (1-based, both included)."""

    first: int
    last: int
    lines: tuple[str, ...]


def rewrite(source: str, entry: str, facts: Facts) -> Ported:
    """Return ``source`` rewritten for the current API: the kernel ``entry``, and the functions that it calls."""
    return _File(source, entry, facts).ported()


def as_one(text: str, name: str, closure: Mapping[str, str]) -> str:
    """Return one file in which the imports of other legacy files are replaced by the text of those files.

    Raise Unportable for an import of a whole file, and for a name that two of the files define.
    """
    helpers = {other: body for other, body in closure.items() if other != name and "neuronxcc" in body}
    defined: dict[str, str] = {}
    return _with_helpers(text, name, helpers, set(), defined) if helpers else text


def _with_helpers(text: str, name: str, helpers: Mapping[str, str], written: set[str], defined: dict[str, str]) -> str:
    """Return the text of the file ``name``, with each import of a helper file replaced by that file's text.

    The files in ``written`` are already in the result, so further imports of them are only removed.
    """
    lines, edits, tree = text.splitlines(), list[Edit](), parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and defined.setdefault(node.name, name) != name:
            where = f"{name} and {defined[node.name]} both define {node.name}"
            raise Unportable(node.lineno, where, "give one of the two another name")
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        asked = [module, *(".".join(filter(None, (module, one.name))) for one in node.names)]
        found = [other for one in asked if (other := _file_of(one, helpers)) is not None]
        if not found:
            continue
        if found != [_file_of(module, helpers)] or any(one.name == "*" for one in node.names):
            raise Unportable(
                node.lineno,
                f"{name} imports a whole file of the kernel, not names from that file: {ast.unparse(node)}",
                f"import the names that it uses from {found[0]}",
            )
        own = [] if found[0] in written else [_with_helpers(helpers[found[0]], found[0], helpers, written, defined)]
        written.add(found[0])
        again = [f"{one.asname} = {one.name}" for one in node.names if one.asname not in (None, one.name)]
        edits.append(Edit(node.lineno, node.end_lineno or node.lineno, (*own, *again)))
    if name in helpers:  # drop the helper's module docstring, which would be in the middle of the joined file
        first, *_ = [*tree.body, None]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            edits.append(Edit(first.lineno, first.end_lineno or first.lineno, ()))
    for edit in sorted(edits, key=lambda one: -one.first):
        lines[edit.first - 1 : edit.last] = edit.lines
    return "\n".join(lines) + "\n"


def _file_of(module: str, helpers: Mapping[str, str]) -> str | None:
    """Return the name of the helper file whose path ends with the path of ``module``; None if no helper file fits."""
    path = module.replace(".", "/") + ".py"
    return next((name for name in helpers if module and (name == path or name.endswith("/" + path))), None)


class _File:
    def __init__(self, source: str, entry: str, facts: Facts) -> None:
        self.entry, self.facts = entry, facts
        self.tree = parse(source)
        self.names = Names(self.tree)
        self.lines = source.splitlines()
        self.comments = _comments(source)
        self.edits: list[Edit] = []
        self.findings: list[Unported] = []
        self.notes: list[Unported] = []

    def ported(self) -> Ported:
        self._imports()
        for node in self.tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if node.name == self.entry or self._reached(node):
                self._function(node)
            elif self._uses_nki(node):
                self.notes.append(
                    Unported(node.lineno, f"{node.name} is not reached from {self.entry}, so it is left out")
                )
                self.edits.append(Edit(_first_line(node), node.end_lineno or node.lineno, ()))
        lines = list(self.lines)
        for edit in sorted(self.edits, key=lambda one: (-one.first, one.last < one.first)):
            lines[edit.first - 1 : edit.last] = edit.lines
        text = "\n".join(lines).rstrip() + "\n"
        text = self._words_imported(text)
        return Ported(text, tuple(sorted(self.findings, key=lambda f: f.line)), tuple(self.notes))

    def _imports(self) -> None:
        """Replace the imports of the legacy package by imports of the current package."""
        old = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom) and _legacy(node)]
        tops = [node for node in old if node in self.tree.body]
        for node in old:
            fresh = IMPORTS if tops and node is tops[0] else ()
            self.edits.append(Edit(node.lineno, node.end_lineno or node.lineno, tuple(fresh)))
        if not tops:
            at = 1
            if self.tree.body and isinstance(self.tree.body[0], ast.Expr):
                at = (self.tree.body[0].end_lineno or 0) + 1
            numpy = (
                ()
                if any(self.names.of(ast.Name("np", ast.Load())) and isinstance(n, ast.Import) for n in self.tree.body)
                else ("import numpy as np",)
            )
            self.edits.append(Edit(at, at - 1, (*IMPORTS, *numpy, "", "")))

    def _words_imported(self, text: str) -> str:
        """Return ``text`` with imports of the single functions of ``nl`` or ``nisa`` that the text still uses by their
        bare names.
        """
        try:
            used = {one.id for one in ast.walk(parse(text)) if isinstance(one, ast.Name)}
        except SyntaxError as error:
            self.findings.append(Unported(0, f"the new text is not Python: {error.msg}, line {error.lineno}"))
            return text
        lines = []
        for short, module in (("nl", "nki.language"), ("nisa", "nki.isa")):
            words = sorted(w for w, meaning in self.names.imported.items() if w in used and meaning == f"{short}.{w}")
            if words:
                lines.append(f"from {module} import {', '.join(words)}")
        return text.replace(IMPORTS[-1], "\n".join([IMPORTS[-1], *lines]), 1) if lines else text

    def _reached(self, node: ast.stmt) -> bool:
        return any(self.facts.visits(one) for one in ast.walk(node) if isinstance(one, ast.expr))

    def _uses_nki(self, node: ast.AST) -> bool:
        return any(
            self.names.of(one).partition(".")[0] in ("nl", "nisa", "nki")
            for one in ast.walk(node)
            if isinstance(one, ast.Name | ast.Attribute)
        )

    def _function(self, node: ast.FunctionDef) -> None:
        blocks = block_tensors(node, self.names, self.facts)
        function = Function(node, self.names, self.facts, blocks)
        self._decorators(node)
        self._annotations(node)
        self._body(function, node.body)
        self.notes.extend(Unported(*one) for one in function.notes)

    def _decorators(self, node: ast.FunctionDef) -> None:
        for one in node.decorator_list:
            if self.names.of(one.func if isinstance(one, ast.Call) else one):
                self.edits.append(Edit(one.lineno, one.end_lineno or one.lineno, ()))
        if node.name == self.entry:
            first = _first_line(node)
            self.edits.append(Edit(first, first - 1, (f"{' ' * node.col_offset}@nki.jit",)))

    def _annotations(self, node: ast.FunctionDef) -> None:
        """Remove annotations that use the legacy package from a function's header, unless the header's lines hold other
        code too.
        """
        args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if not any(a.annotation is not None and self._uses_nki(a.annotation) for a in args) and (
            node.returns is None or not self._uses_nki(node.returns)
        ):
            return
        for one in args:
            if one.annotation is not None and self._uses_nki(one.annotation):
                one.annotation = None
        if node.returns is not None and self._uses_nki(node.returns):
            node.returns = None
        head = f"{' ' * node.col_offset}def {node.name}({ast.unparse(node.args)}):"
        last = node.body[0].lineno - 1
        body = node.body[0]
        while last > node.lineno and (not self.lines[last - 1].strip() or last in self.comments):
            last -= 1
        if last >= node.lineno and last < body.lineno:
            self.edits.append(Edit(node.lineno, last, (head,)))

    def _body(self, function: Function, body: Sequence[ast.stmt]) -> None:
        function.sizes.append({})
        last = max((at for at, node in enumerate(body) if self._reached(node)), default=len(body)) + 1
        rest = body[last:]
        if not any(map(self._uses_nki, rest)) or not isinstance(body[last - 1], ast.If):
            last = len(body)
        for node in body[:last]:
            self._statement(function, node)
        if body[last:]:
            self._untraced(body[last:], body[last].col_offset)
        function.sizes.pop()

    def _statement(self, function: Function, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Break | ast.Continue | ast.Global):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        try:
            if isinstance(node, ast.For):
                self._for(function, node)
            elif isinstance(node, ast.If | ast.While):
                self._branch(function, node)
            elif isinstance(node, ast.With):
                self._with(function, node)
            elif isinstance(node, ast.FunctionDef):
                self._nested(function, node)
            else:
                self._simple(function, node)
        except Unportable as error:
            self.findings.append(Unported(error.line, error.message, error.instead))

    def _nested(self, function: Function, node: ast.FunctionDef) -> None:
        """Rewrite a function that is defined inside the kernel and can use the kernel's index grids and
        tensors.
        """
        if not self._reached(node) and self._uses_nki(node):
            self._untraced(node.body, node.body[0].col_offset)
            return
        blocks = {**function.blocks, **block_tensors(node, self.names, self.facts)}
        inner = Function(node, self.names, self.facts, blocks)
        inner.grids, inner.masks, inner.made = dict(function.grids), dict(function.masks), set(function.made)
        inner.taken = function.taken
        self._body(inner, node.body)
        self.notes.extend(Unported(*one) for one in inner.notes)

    def _untraced(self, body: Sequence[ast.stmt], column: int) -> None:
        """Replace the statements of a branch that the trace never reached by an assertion that fails."""
        self.notes.append(
            Unported(
                body[0].lineno,
                "these lines were not traced for these arguments, so they are not ported: an assert stands in their place",
            )
        )
        text = f'{" " * column}assert False, "not ported: these arguments were not traced"'
        self.edits.append(Edit(body[0].lineno, body[-1].end_lineno or body[-1].lineno, (text,)))

    def _for(self, function: Function, node: ast.For) -> None:
        self._head(function, node, "iter")
        sunk = [tensor for tensor in function.blocks.values() if tensor.inside is node]
        if sunk:
            first = node.body[0]
            indent = " " * first.col_offset
            lines = [line for tensor in sunk for line in self._declared(function, tensor, indent)]
            self.edits.append(Edit(first.lineno, first.lineno - 1, tuple(lines)))
        self._body(function, node.body)
        self._body(function, node.orelse)

    def _declared(self, function: Function, tensor: BlockTensor, indent: str) -> list[str]:
        assert tensor.declaration is not None
        value = tensor.declaration.value
        assert isinstance(value, ast.Call)
        word = self.names.of(value.func).partition(".")[2]
        function.out = []
        made = function.declaration(value, word)
        assert isinstance(made, ast.Call)
        made.keywords = [k for k in made.keywords if k.arg != "name"]
        kept = [tensor.blocks[at] for at in tensor.kept]
        sizes = [tensor.partitions, *(() if tensor.psum else kept), *tensor.free]
        shape = ast.Tuple([function.value(one) for one in sizes], ast.Load())
        made.args = [shape, *made.args[1:]]
        result: ast.expr = made
        if tensor.psum:
            for size in reversed(kept):
                generator = ast.comprehension(ast.Name("_", ast.Store()), call("range", function.value(size)), [], 0)
                result = ast.ListComp(result, [generator])
        return _text([ast.Assign([ast.Name(tensor.name, ast.Store())], result)], indent)

    def _branch(self, function: Function, node: ast.If | ast.While) -> None:
        taken = [any(map(self._reached, part)) for part in (node.body, node.orelse)]
        self._head(function, node, "test")
        for part, reached in zip((node.body, node.orelse), taken, strict=True):
            if part and not reached and any(map(self._uses_nki, part)):
                chained = part is node.orelse and self.lines[part[0].lineno - 1].lstrip().startswith("elif")
                self._untraced(part, node.col_offset + 4 if chained else part[0].col_offset)
                if chained:
                    edit = self.edits.pop()
                    self.edits.append(Edit(edit.first, edit.last, (f"{' ' * node.col_offset}else:", *edit.lines)))
            else:
                self._body(function, part)

    def _with(self, function: Function, node: ast.With) -> None:
        for item in node.items:
            made = function.header(item.context_expr)
            if ast.unparse(made) != ast.unparse(item.context_expr):
                raise Unportable(
                    node.lineno,
                    f"the current API has no {ast.unparse(item.context_expr)[:60]} for a with block",
                    "write the block's body without the block",
                )
        self._body(function, node.body)

    def _head(self, function: Function, node: ast.For | ast.If | ast.While, key: str) -> None:
        old: ast.expr = getattr(node, key)
        made = function.header(old)
        if ast.unparse(made) == ast.unparse(old):
            return
        indent = " " * node.col_offset
        last = node.body[0].lineno - 1 if node.body[0].lineno > node.lineno else node.lineno
        last = min(last, old.end_lineno or node.lineno)
        word = "for" if isinstance(node, ast.For) else "while" if isinstance(node, ast.While) else "if"
        if isinstance(node, ast.If) and self.lines[node.lineno - 1].lstrip().startswith("elif"):
            word = "elif"
        head = (
            f"{word} {ast.unparse(node.target)} in {ast.unparse(made)}:"
            if isinstance(node, ast.For)
            else f"{word} {ast.unparse(made)}:"
        )
        self.edits.append(Edit(node.lineno, last, (indent + head,)))

    def _simple(self, function: Function, node: ast.stmt) -> None:
        made = [ast.fix_missing_locations(one) for one in function.statement(node)]
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        tensor = function.blocks.get(target.id) if isinstance(target, ast.Name) else None
        if tensor is not None and tensor.declaration is node:
            lines = [] if tensor.inside is not None else self._declared(function, tensor, " " * node.col_offset)
            self._replace(node, lines)
            return
        if len(made) == 1 and ast.unparse(made[0]) == ast.unparse(node):
            return
        self._replace(node, _text(made, " " * node.col_offset))

    def _replace(self, node: ast.stmt, lines: list[str]) -> None:
        last = node.end_lineno or node.lineno
        indent = " " * node.col_offset
        kept = [f"{indent}{self.comments[at]}" for at in range(node.lineno, last + 1) if at in self.comments]
        self.edits.append(Edit(node.lineno, last, (*kept, *lines)))


def _first_line(node: ast.FunctionDef) -> int:
    """Return the number of the first line of a function, its decorators included."""
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _legacy(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.Import):
        return any(
            (one.name in MODULES and one.name != "numpy") or one.name.startswith("neuronxcc") for one in node.names
        )
    return (node.module or "").startswith("neuronxcc")


def _comments(source: str) -> dict[int, str]:
    """Return the comments of a source by line number."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found[token.start[0]] = token.string
    return found


def _text(statements: Iterable[ast.stmt], indent: str) -> list[str]:
    """Return statements as lines of at most :data:`WIDTH` columns. A line without a call that could be broken may be
    longer.
    """
    lines: list[str] = []
    for one in statements:
        ast.fix_missing_locations(one)
        if isinstance(one, ast.If):
            lines.append(f"{indent}if {ast.unparse(one.test)}:")
            lines += _text(one.body, indent + "    ")
            if one.orelse:
                lines.append(f"{indent}else:")
                lines += _text(one.orelse, indent + "    ")
            continue
        text = ast.unparse(one)
        if len(indent) + len(text) <= WIDTH or "\n" in text:
            lines += textwrap.indent(text, indent).splitlines()
            continue
        value = one.value if isinstance(one, ast.Expr | ast.Assign) else None
        if isinstance(value, ast.Call):
            head = f"{ast.unparse(one.targets[0])} = " if isinstance(one, ast.Assign) else ""
            parts = [*map(ast.unparse, value.args), *(f"{k.arg}={ast.unparse(k.value)}" for k in value.keywords)]
            lines.append(f"{indent}{head}{ast.unparse(value.func)}(")
            lines += [f"{indent}    {part}," for part in parts]
            lines.append(f"{indent})")
        else:
            lines.append(indent + text)
    return lines
