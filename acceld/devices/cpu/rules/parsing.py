"""Read C kernels: for loops in canonical form, declarations, assignments and calls.

tree-sitter parses the source. A statement of another kind, or with a syntax error, becomes :class:`Opaque`,
about which nothing is proven. A source with conditional compilation is refused.
"""

from __future__ import annotations

import tree_sitter
import tree_sitter_c

from acceld.devices.cpu.rules.syntax import (
    Block,
    Declaration,
    Declarator,
    Evaluation,
    Expr,
    For,
    Function,
    If,
    Opaque,
    Parameter,
    Pragma,
    Statement,
    assigned_scalars,
    declared,
)
from acceld.errors import RuleRefused

Tree = tree_sitter.Node
_C = tree_sitter.Language(tree_sitter_c.language())
_LEAVES = {
    "identifier": "name",
    "true": "name",
    "false": "name",
    "null": "name",
    "number_literal": "number",
    "string_literal": "text",
    "char_literal": "text",
}
"""Kinds of expressions without operands."""
_TYPE = frozenset(("primitive_type", "sized_type_specifier", "type_identifier"))
_QUALIFIERS = frozenset(("type_qualifier", "storage_class_specifier", "ms_pointer_modifier"))
_CONDITIONAL = ("if", "ifdef", "ifndef", "else", "elif", "undef")


class _Unknown(Exception):
    """Raised inside the parser for a construct that it does not understand."""


def parse(source: str) -> Reader:
    """Return the functions and loops of a source.

    Raise RuleRefused for conditional compilation, and for code that is nested too deeply.
    """
    # One byte a character, so that offsets in the tree are offsets in the source. A "?" replaces other characters.
    tree = tree_sitter.Parser(_C).parse(source.encode("ascii", "replace"))
    try:
        return Reader(tree.root_node, source)
    except RecursionError:
        raise RuleRefused("the source is nested too deeply: write long expressions as several statements") from None


class Reader:
    """Functions of a source, the texts of its ``#define`` directives, and each use of a name."""

    def __init__(self, root: Tree, source: str) -> None:
        self.source = source
        self.functions: list[Function] = []
        self.defines: dict[str, str] = {}
        self.identifiers: list[Tree] = []
        """Each use of a name in the source, in order. Names of types and of members are left out."""
        self._list(root)
        for node in root.children:
            if node.type == "function_definition":
                try:
                    self.functions.append(self._function(node))
                except _Unknown:
                    continue

    def _list(self, node: Tree) -> None:
        if node.type == "identifier":
            self.identifiers.append(node)
        elif node.type in ("preproc_if", "preproc_ifdef") or self._directive(node) in _CONDITIONAL:
            raise RuleRefused(
                f"line {node.start_point.row + 1}: conditional compilation is not read: keep only the branch for this machine"
            )
        elif node.type == "preproc_def":
            value = node.child_by_field_name("value")
            if value is not None:
                self.defines[self._text(_field(node, "name"))] = self._text(value).strip()
        for child in node.children:
            self._list(child)

    def _text(self, node: Tree) -> str:
        return self.source[node.start_byte : node.end_byte]

    def _directive(self, node: Tree) -> str:
        """Return the word after the ``#`` of a preprocessor directive; empty for any other node."""
        return self._text(_field(node, "directive"))[1:].strip() if node.type == "preproc_call" else ""

    # Functions.

    def _function(self, node: Tree) -> Function:
        declarator = _field(node, "declarator")
        while declarator.type == "pointer_declarator":
            declarator = _field(declarator, "declarator")
        if declarator.type != "function_declarator" or declarator.has_error:
            raise _Unknown
        name = self._text(_field(declarator, "declarator"))
        parameters = [self._parameter(one) for one in _parts(_field(declarator, "parameters"))]
        return Function(node.start_byte, node.end_byte, name, parameters, self._block(_field(node, "body")))

    def _parameter(self, node: Tree) -> Parameter:
        declarator = node.child_by_field_name("declarator")
        if declarator is None and self._text(node) == "void":
            return Parameter(node.start_byte, node.end_byte, "", "void", False, False, 0)
        if declarator is None:
            raise _Unknown
        kind, pointer, star_end, restrict = self._type(node), False, 0, False
        if declarator.type == "pointer_declarator":
            restrict = any("restrict" in self._text(one) for one in declarator.children if one.type in _QUALIFIERS)
            pointer, star_end = True, declarator.children[0].end_byte
            declarator = _field(declarator, "declarator")
        if declarator.type != "identifier":
            raise _Unknown
        name = self._text(declarator)
        return Parameter(node.start_byte, node.end_byte, kind, name, pointer, restrict, star_end)

    def _type(self, node: Tree) -> str:
        """Return the type in a declaration: the words before the first declared name."""
        words = []
        for child in _parts(node):
            if child.type not in _TYPE | _QUALIFIERS:
                break
            words.append(self._text(child))
        if _field(node, "type").type not in _TYPE or any("(" in word for word in words):
            raise _Unknown
        return " ".join(" ".join(words).split())

    # Statements.

    def _statement(self, node: Tree) -> Statement:
        try:
            match node.type:
                case "compound_statement":
                    return self._block(node)
                case "for_statement":
                    return self._for(node)
                case "if_statement":
                    return self._if(node)
            if node.has_error:
                raise _Unknown
            start, end = node.start_byte, node.end_byte
            match node.type:
                case "preproc_call" if self._directive(node) == "pragma":
                    text = self._text(node).rstrip()
                    return Pragma(start, start + len(text), text)
                case "declaration":
                    return self._declaration(node)
                case "expression_statement":
                    inside = _parts(node)
                    return Evaluation(start, end, self._expr(inside[0])) if inside else Block(start, end, [])
        except _Unknown:
            pass
        return Opaque(node.start_byte, node.end_byte)

    def _block(self, node: Tree) -> Block:
        _check_whole(node)
        items: list[Statement] = []
        pragmas: list[Pragma] = []
        for child in _parts(node):
            item = self._statement(child)
            items.append(item)
            if isinstance(item, Pragma):
                pragmas.append(item)
                continue
            if isinstance(item, For):
                item.pragmas = pragmas
            pragmas = []
        return Block(node.start_byte, node.end_byte, items)

    def _body(self, node: Tree) -> Block:
        one = self._statement(node)
        return one if isinstance(one, Block) else Block(one.start, one.end, [one])

    def _declaration(self, node: Tree) -> Declaration:
        declarators = [self._declarator(one) for one in node.children_by_field_name("declarator")]
        return Declaration(node.start_byte, node.end_byte, self._type(node), declarators)

    def _declarator(self, node: Tree) -> Declarator:
        extent = value = None
        pointer = False
        if node.type == "init_declarator":
            value = self._expr(_field(node, "value"))
            node = _field(node, "declarator")
        while node.type == "pointer_declarator":
            pointer, node = True, _field(node, "declarator")
        if node.type == "array_declarator":
            extent = self._expr(_field(node, "size"))
            node = _field(node, "declarator")
        if node.type != "identifier":
            raise _Unknown
        return Declarator(self._text(node), extent, value, pointer)

    def _if(self, node: Tree) -> If:
        _check_whole(node)
        branches = [self._body(_field(node, "consequence"))]
        otherwise = node.child_by_field_name("alternative")
        if otherwise is not None:
            _check_whole(otherwise)
            branches.append(self._body(_parts(otherwise)[-1]))
        condition = self._expr(_parts(_field(node, "condition"))[0])
        return If(node.start_byte, node.end_byte, condition, branches)

    def _for(self, node: Tree) -> For:
        _check_whole(node)
        declaration = _field(node, "initializer")
        if declaration.type != "declaration" or declaration.has_error:
            raise _Unknown
        (first, *others), kind = self._declaration(declaration).declarators, self._type(declaration)
        condition, update = self._expr(_field(node, "condition")), self._expr(_field(node, "update"))
        if others or first.value is None or first.extent is not None or first.pointer:
            raise _Unknown
        if condition.kind != "binary" or condition.op not in ("<", "<=") or condition.parts[0].op != first.name:
            raise _Unknown
        bound = condition.parts[1]
        if condition.op == "<=":
            bound = Expr(bound.start, bound.end, "binary", "+", [bound, Expr(bound.end, bound.end, "number", "1")])
        step = _step(update, first.name)
        body = self._body(_field(node, "body"))
        if first.name in assigned_scalars(body) | declared(body):
            raise _Unknown
        line = node.start_point.row + 1
        return For(node.start_byte, body.end, kind, first.name, first.value, bound, step, body, line)

    # Expressions.

    def _expr(self, node: Tree) -> Expr:
        start, end, text = node.start_byte, node.end_byte, self._text(node)
        if node.has_error:
            raise _Unknown
        if node.type in _LEAVES:
            return Expr(start, end, _LEAVES[node.type], text)
        match node.type:
            case "parenthesized_expression":
                inner = self._expr(_parts(node)[0])
                return Expr(start, end, inner.kind, inner.op, inner.parts)
            case "binary_expression" | "assignment_expression":
                kind = "binary" if node.type == "binary_expression" else "assign"
                return Expr(start, end, kind, self._operator(node), self._exprs(node, "left", "right"))
            case "unary_expression" | "pointer_expression":
                return Expr(start, end, "unary", self._operator(node), self._exprs(node, "argument"))
            case "update_expression":
                operator = _field(node, "operator")
                after = "post" if operator.start_byte > start else ""
                return Expr(start, end, "unary", after + self._text(operator), self._exprs(node, "argument"))
            case "subscript_expression":
                return Expr(start, end, "index", "[]", self._exprs(node, "argument", "index"))
            case "conditional_expression":
                return Expr(start, end, "ternary", "?", self._exprs(node, "condition", "consequence", "alternative"))
            case "cast_expression" if "(" not in self._text(_field(node, "type")):
                return Expr(start, end, "cast", self._text(_field(node, "type")), self._exprs(node, "value"))
            case "call_expression" if _field(node, "function").type == "identifier":
                arguments = [self._expr(one) for one in _parts(_field(node, "arguments"))]
                return Expr(start, end, "call", self._text(_field(node, "function")), arguments)
        raise _Unknown

    def _exprs(self, node: Tree, *fields: str) -> list[Expr]:
        return [self._expr(_field(node, name)) for name in fields]

    def _operator(self, node: Tree) -> str:
        return self._text(_field(node, "operator"))


def _field(node: Tree, name: str) -> Tree:
    """Return the child of a node that the grammar calls ``name``."""
    found = node.child_by_field_name(name)
    if found is None:
        raise _Unknown
    return found


def _parts(node: Tree) -> list[Tree]:
    """Return a node's children, except punctuation and comments."""
    return [one for one in node.named_children if one.type != "comment"]


def _check_whole(node: Tree) -> None:
    """Raise _Unknown if a token of this statement is missing or unexpected. Statements inside of it are not checked."""
    if any(one.is_missing or (one.is_error and node.type != "compound_statement") for one in node.children):
        raise _Unknown


def _step(update: Expr, var: str) -> int:
    """Return the step that a loop's update adds to the variable."""
    if update.kind == "unary" and update.op in ("++", "post++") and update.parts[0].op == var:
        return 1
    if update.kind == "assign" and update.op == "+=" and update.parts[0].op == var:
        amount = update.parts[1]
        if amount.kind == "number" and amount.op.isdigit() and int(amount.op) > 0:
            return int(amount.op)
    raise _Unknown
