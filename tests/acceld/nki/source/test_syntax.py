"""Tests of walking syntax trees."""

import ast
from pathlib import Path

from acceld.nki.source import syntax
from acceld.nki.source.syntax import below, uncached_names_in, walked

SOURCE = '''
def kernel(x, *rest, scale: float = 1.0, **named):
    """Do some of everything."""
    y: int = x[1:2, ::3, None, ...].shape[-1] if scale else -x @ (1, [2], {3}, {4: 5, **named})
    for i, j in zip(*rest, strict=True):
        total = total + i if (n := j) < 2 < 3 else lambda a, b=1: a
        y[i] += f"{total!r:>{i}}"
    with open(x) as file, x:
        assert all(one for each in x if each for one in each), "text"
    try:
        del x.a, x[0]
    except (ValueError, TypeError) as error:
        raise error from None
    match x:
        case {"a": [1, *more], **others} | Point(0, y=other) as whole if whole:
            return [one async for one in x], (yield)
'''


def _fields(node: ast.AST) -> list[ast.AST]:
    """Return the children of a node as its fields have them."""
    left_out = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    return [one for one in ast.iter_child_nodes(node) if not isinstance(one, left_out)]


def test_every_node_has_its_children_in_the_order_of_its_fields() -> None:
    for source in (SOURCE, Path(syntax.__file__).read_text("utf-8")):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            assert below(node) == _fields(node), ast.dump(node)
        names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
        assert {*names} == {one for one in walked(tree) if isinstance(one, ast.Name)}
        assert {*names} == {*uncached_names_in(tree)}


def test_names_come_in_the_order_of_the_source() -> None:
    tree = ast.parse("a.b[c, d:e](f, g=h) + [i, (j, 1)]")
    assert "".join(one.id for one in uncached_names_in(tree)) == "acdefhij"
