"""Prove that parts of a kernel do not affect each other's results.

Each function here tests one condition. It returns the empty text if the condition holds. Otherwise it returns
the reason: the line that is in the way, and the change that would help.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acceld.nki.source.building import read, written
from acceld.nki.source.syntax import Item, Loop, Statement, accesses, flatten, names_in


def understood(items: Sequence[Item], *, names: bool = False) -> str:
    """Return the empty text if all statements in ``items`` are operations, declarations or markers; else a reason that
    names the statement which is not.

    With ``names``, statements that name an index and ``return`` statements are allowed too.
    """
    fine = ("op", "marker", "declaration", *(("alias", "return") if names else ()))
    one = next((one for one in flatten(items) if one.kind not in fine), None)
    if one is None:
        return ""
    return f"the statement in line {one.line} is not understood: write it with functions of nl and nisa, on tiles that have one name"


def parallel(loops: Iterable[Loop]) -> str:
    """Return the empty text if the iterations of each of ``loops`` are independent; else a reason that names the loop
    whose iterations may depend on each other.
    """
    loop = next((loop for loop in loops if loop.kind != "affine_range"), None)
    if loop is None:
        return ""
    return f"the loop over {loop.variable} in line {loop.line} is a {loop.kind}: write affine_range if its iterations are independent"


def same_range(loop: Loop, variables: Iterable[str]) -> str:
    """Return the empty text if the range of ``loop`` does not depend on any of the loop variables ``variables``; else
    the reason.
    """
    used = sorted({name.id for name in names_in(loop.node.iter)} & set(variables))
    return (
        f"the range of loop {loop.variable} in line {loop.line} depends on {used[0]}: give it as a number"
        if used
        else ""
    )


def undisturbed(first: Sequence[Item], second: Sequence[Item], handed: Iterable[str] = ()) -> str:
    """Return the empty text if the part ``second`` of a kernel can run without regard to the part ``first``.

    Otherwise return the reason: ``second`` writes a tile that ``first`` reads or writes, or reads a tile that
    ``first`` writes. ``second`` may read the tiles ``handed``.
    """
    made, used = written(first), read(first)
    changed = sorted((made | used) & written(second)) or sorted(made & read(second) - set(handed))
    return (
        f"{changed[0]} is also used in line {_user(second, changed[0])}: give that line a tile of its own"
        if changed
        else ""
    )


def _user(items: Sequence[Item], name: str) -> int:
    return next(one.line for one in flatten(items) if name in {access.name for access in accesses(one)})


def one_result(statements: Iterable[Statement]) -> str:
    """Return the empty text if no statement writes a second result, such as a sum in ``reduce_res``; else a reason that
    names the statement.
    """
    one = next((one for one in statements if one.second is not None), None)
    return (
        f"the instruction in line {one.line} has a second result: compute that result by an instruction of its own"
        if one is not None
        else ""
    )
