"""A reader of the C that kernels are written in: canonical for loops, declarations, assignments, calls.

It is no C compiler: what it does not know becomes :class:`Opaque`, about which nothing is proven, and a file whose
outline it can not follow is refused.
"""

from __future__ import annotations

import re

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
)
from acceld.proposers.rules.records import RuleRefused

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<directive>\#(?:\\\n|[^\n])*)"
    r'|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])",
    re.DOTALL,
)
_TYPES = frozenset(
    "void char short int long float double signed unsigned const volatile static inline restrict __restrict "
    "__restrict__ size_t ssize_t ptrdiff_t bool _Bool register struct".split()
)
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_ASSIGN = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())
_RESTRICT = frozenset(("restrict", "__restrict", "__restrict__"))


class _Unknown(Exception):
    """The reader does not know what stands here."""


class Token:
    """One token with its place."""

    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int) -> None:
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)


def tokens_of(source: str) -> list[Token]:
    """The tokens of a source, without space and comments. RuleRefused for a character that C does not have."""
    found, position = [], 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            line = source.count("\n", 0, position) + 1
            raise RuleRefused(f"line {line}: {source[position]!r} is not read")
        kind = str(match.lastgroup)
        if kind != "skip":
            found.append(Token(kind, match.group(), position))
        position = match.end()
    return found


class Parser:
    """Reads one source; ``functions`` and ``defines`` are what it found."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens_of(source)
        self.position = 0
        self.functions: list[Function] = []
        self.defines: dict[str, str] = {}
        self._loops: list[For] = []
        while self.position < len(self.tokens):
            self._outer()

    # Outline.

    def _outer(self) -> None:
        token = self.tokens[self.position]
        if token.kind == "directive":
            self._directive(token)
            self.position += 1
            return
        start = self.position
        try:
            self.functions.append(self._function())
        except _Unknown:
            self.position = start
            self._skip_outer()

    def _directive(self, token: Token) -> None:
        words = token.text[1:].split(None, 2)
        if words and words[0] in ("if", "ifdef", "ifndef", "else", "elif", "undef"):
            raise RuleRefused(f"line {self.line(token.start)}: conditional compilation is not read")
        if len(words) == 3 and words[0] == "define" and words[1].isidentifier():
            self.defines[words[1]] = words[2].split("//")[0].split("/*")[0].strip()

    def _function(self) -> Function:
        start = self._at().start
        while (self._at().kind == "name" and self._at(1).text != "(") or self._at().text == "*":
            self.position += 1
        name = self._name()
        self._take("(")
        parameters = []
        while self._at().text != ")":
            parameters.append(self._parameter())
            if self._at().text == ",":
                self.position += 1
        self._take(")")
        if self._at().text != "{":
            raise _Unknown
        return Function(start, 0, name, parameters, self._block())

    def _parameter(self) -> Parameter:
        words: list[str] = []
        start, stars, star_end, restrict = self._at().start, 0, 0, False
        while self._at().text not in (",", ")"):
            token = self._at()
            if token.text == "*":
                stars, star_end = stars + 1, token.end
            elif token.text in _RESTRICT:
                restrict = True
            elif token.kind == "name":
                words.append(token.text)
            else:
                raise _Unknown
            self.position += 1
        if stars > 1 or not words:
            raise _Unknown
        end = self.tokens[self.position - 1].end
        return Parameter(start, end, " ".join(words[:-1]), words[-1], bool(stars), restrict, star_end)

    def _skip_outer(self) -> None:
        """Past a declaration or a function that is not read."""
        depth = 0
        while self.position < len(self.tokens):
            text = self.tokens[self.position].text
            depth += (text == "{") - (text == "}")
            self.position += 1
            if depth == 0 and text in (";", "}"):
                return

    # Statements.

    def _block(self) -> Block:
        start = self._at().start
        self._take("{")
        items: list[Statement] = []
        while self._at().text != "}":
            items.append(self._statement())
            self._attach(items)
        end = self._at().end
        self.position += 1
        return Block(start, end, items)

    def _attach(self, items: list[Statement]) -> None:
        """Pragmas before a loop are the loop's."""
        last = items[-1]
        if isinstance(last, For):
            before = len(items) - 1
            while before and isinstance(items[before - 1], Pragma):
                before -= 1
            last.pragmas = [one for one in items[before:-1] if isinstance(one, Pragma)]

    def _statement(self) -> Statement:
        token, begin = self._at(), self.position
        loops = len(self._loops)
        try:
            if token.kind == "directive":
                self.position += 1
                if not token.text[1:].lstrip().startswith("pragma"):
                    raise _Unknown
                return Pragma(token.start, token.end, token.text)
            if token.text == "{":
                return self._block()
            if token.text == "for":
                return self._for()
            if token.text == "if":
                return self._if()
            if token.text == ";":
                self.position += 1
                return Block(token.start, token.end, [])
            if self._declares():
                return self._declaration()
            if token.text in ("while", "do", "switch", "goto", "return", "break", "continue", "case", "default"):
                raise _Unknown
            expr = self._expression()
            end = self._take(";").end
            return Evaluation(token.start, end, expr)
        except _Unknown:
            del self._loops[loops:]
            self.position = begin
            return self._opaque()

    def _opaque(self) -> Opaque:
        start, depth = self._at().start, 0
        while True:
            text = self._at().text
            depth += (text in "({[") - (text in ")}]") if len(text) == 1 else 0
            end = self._at().end
            self.position += 1
            if depth <= 0 and text in (";", "}"):
                return Opaque(start, end)

    def _declares(self) -> bool:
        first, second = self._at(), self._at(1)
        if first.kind != "name":
            return False
        if first.text in _TYPES or first.text.endswith("_t"):
            return True
        return second.kind == "name"

    def _type(self) -> str:
        words = [self._name()]
        while self._at().kind == "name" and self._at(1).text not in ("=", ";", ",", "[", ")"):
            words.append(self._name())
        return " ".join(words)

    def _declaration(self) -> Declaration:
        start = self._at().start
        kind = self._type()
        declarators = []
        while True:
            pointer = self._at().text == "*"
            while self._at().text == "*" or self._at().text in (*_RESTRICT, "const"):
                self.position += 1
            name, extent, value = self._name(), None, None
            if self._at().text == "[":
                self.position += 1
                extent = self._expression()
                self._take("]")
            if self._at().text == "=":
                self.position += 1
                if self._at().text == "{":
                    raise _Unknown
                value = self._assignment()
            declarators.append(Declarator(name, extent, value, pointer))
            if self._at().text != ",":
                break
            self.position += 1
        end = self._take(";").end
        return Declaration(start, end, kind, declarators)

    def _if(self) -> If:
        start = self._at().start
        self.position += 1
        self._take("(")
        condition = self._expression()
        self._take(")")
        branches = [self._body()]
        if self._at().text == "else":
            self.position += 1
            branches.append(self._body())
        return If(start, self.tokens[self.position - 1].end, condition, branches)

    def _body(self) -> Block:
        if self._at().text == "{":
            return self._block()
        one = self._statement()
        return Block(one.start, one.end, [one])

    def _for(self) -> For:
        start = self._at().start
        self.position += 1
        self._take("(")
        kind = self._type()
        var = self._name()
        self._take("=")
        first = self._expression()
        self._take(";")
        condition = self._expression()
        self._take(";")
        step = self._step(self._expression(), var)
        header_end = self._take(")").end
        if condition.kind != "binary" or condition.op not in ("<", "<=") or condition.parts[0].op != var:
            raise _Unknown
        bound = condition.parts[1]
        if condition.op == "<=":
            bound = Expr(bound.start, bound.end, "binary", "+", [bound, Expr(bound.end, bound.end, "number", "1")])
        empty = Block(header_end, header_end, [])
        loop = For(start, start, kind, var, first, bound, step, empty, header_end, self.line(start))
        self._loops.append(loop)
        loop.body = self._body()
        loop.end = loop.body.end
        if var in assigned_scalars(loop.body):
            raise _Unknown
        return loop

    @staticmethod
    def _step(expr: Expr, var: str) -> int:
        if expr.kind == "unary" and expr.op in ("++", "post++") and expr.parts[0].op == var:
            return 1
        if expr.kind == "assign" and expr.op == "+=" and expr.parts[0].op == var:
            amount = expr.parts[1]
            if amount.kind == "number" and amount.op.isdigit() and int(amount.op) > 0:
                return int(amount.op)
        raise _Unknown

    # Expressions.

    def _expression(self) -> Expr:
        expr = self._assignment()
        if self._at().text == ",":
            raise _Unknown
        return expr

    def _assignment(self) -> Expr:
        left = self._ternary()
        if self._at().text in _ASSIGN:
            op = self._at().text
            self.position += 1
            right = self._assignment()
            return Expr(left.start, right.end, "assign", op, [left, right])
        return left

    def _ternary(self) -> Expr:
        condition = self._binary(0)
        if self._at().text != "?":
            return condition
        self.position += 1
        yes = self._assignment()
        self._take(":")
        no = self._ternary()
        return Expr(condition.start, no.end, "ternary", "?", [condition, yes, no])

    def _binary(self, level: int) -> Expr:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._at().text in _LEVELS[level]:
            op = self._at().text
            self.position += 1
            right = self._binary(level + 1)
            left = Expr(left.start, right.end, "binary", op, [left, right])
        return left

    def _unary(self) -> Expr:
        token = self._at()
        if token.text in ("-", "+", "!", "~", "++", "--", "&", "*"):
            self.position += 1
            inner = self._unary()
            return Expr(token.start, inner.end, "unary", token.text, [inner])
        if token.text == "(" and (self._at(1).text in _TYPES or self._at(1).text.endswith("_t")):
            self.position += 1
            words = []
            while self._at().text != ")":
                words.append(self._at().text)
                self.position += 1
            self.position += 1
            inner = self._unary()
            return Expr(token.start, inner.end, "cast", " ".join(words), [inner])
        return self._postfix()

    def _postfix(self) -> Expr:
        expr = self._primary()
        while True:
            token = self._at()
            if token.text == "[":
                self.position += 1
                index = self._expression()
                end = self._take("]").end
                expr = Expr(expr.start, end, "index", "[]", [expr, index])
            elif token.text == "(" and expr.kind == "name":
                expr = self._call(expr)
            elif token.text in ("++", "--"):
                self.position += 1
                expr = Expr(expr.start, token.end, "unary", f"post{token.text}", [expr])
            elif token.text in (".", "->"):
                raise _Unknown
            else:
                return expr

    def _call(self, function: Expr) -> Expr:
        self.position += 1
        parts = []
        while self._at().text != ")":
            parts.append(self._assignment())
            if self._at().text == ",":
                self.position += 1
        end = self._take(")").end
        return Expr(function.start, end, "call", function.op, parts)

    def _primary(self) -> Expr:
        token = self._at()
        self.position += 1
        if token.kind in ("name", "number", "text"):
            if token.text in _TYPES:
                raise _Unknown
            return Expr(token.start, token.end, token.kind, token.text)
        if token.text == "(":
            inner = self._expression()
            end = self._take(")").end
            return Expr(token.start, end, inner.kind, inner.op, inner.parts)
        raise _Unknown

    # Tokens.

    def line(self, position: int) -> int:
        """Line of a place in the source, from 1."""
        return self.source.count("\n", 0, position) + 1

    def _at(self, ahead: int = 0) -> Token:
        if self.position + ahead >= len(self.tokens):
            if ahead:
                return Token("op", "", len(self.source))
            raise RuleRefused("the source ends in the middle of something")
        return self.tokens[self.position + ahead]

    def _take(self, text: str) -> Token:
        token = self._at()
        if token.text != text:
            raise _Unknown
        self.position += 1
        return token

    def _name(self) -> str:
        token = self._at()
        if token.kind != "name":
            raise _Unknown
        self.position += 1
        return token.text
