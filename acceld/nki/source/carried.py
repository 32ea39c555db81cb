"""Find numbers and indices that one iteration of a loop takes over from the previous iteration."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from acceld.nki.source.syntax import Loop, walked

_BODIES = ("body", "orelse", "finalbody")


def carried_names(loop: Loop) -> set[str]:
    """Return the names of numbers and indices that an iteration of ``loop`` may read before it binds them, such as
    ``off`` in ``off = off + 128``. Names of tiles are left out.
    """
    bound = {
        one.id
        for statement in loop.statements()
        if statement.kind == "alias"
        for one in walked(statement.node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    return _read_first(loop.node.body, bound, set()) if bound else set()


def _read_first(body: Sequence[ast.stmt], bound: set[str], done: set[str]) -> set[str]:
    """Return the names in ``bound`` that ``body`` reads while they are not in ``done``. Add to ``done`` the names that
    ``body`` certainly binds.
    """
    found: set[str] = set()
    for statement in body:
        inner = [part for field in _BODIES if (part := getattr(statement, field, None))]
        inner += [part.body for field in ("handlers", "cases") for part in getattr(statement, field, ())]
        if not inner:
            found |= (_names(statement, ast.Load) & bound) - done
            if isinstance(statement, ast.AugAssign):
                found |= (_names(statement.target, ast.Store) & bound) - done
            done |= _names(statement, ast.Store)
            continue
        heads = [getattr(statement, field, None) for field in ("iter", "test", "subject")]
        found |= set().union(*(_names(head, ast.Load) for head in heads if head is not None)) & bound - done
        own = _names(statement.target, ast.Store) if isinstance(statement, ast.For) else set()
        for part in inner:  # an inner block may not run, so the names that it binds may keep their old values
            found |= _read_first(part, bound, done | own)
    return found


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in walked(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}
