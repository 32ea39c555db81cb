"""Run collective operations of several ranks. Each rank is a thread that waits for the other ranks at each
collective.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, Member, crash, undefined_use
from acceld.nki.execute.windows import Window
from acceld.nki.ir.numerics import Array, combine

_EQUALLY = "let every rank call the same collectives in the same order"


class Ranks:
    """Exchange tiles between ranks, the cores that run one program side by side. Each rank gives one tile and gets the
    tiles of all ranks.
    """

    def __init__(self, world: int) -> None:
        self.world = world
        self._barrier = threading.Barrier(world)
        self._brought: list[tuple[str, Array] | None] = [None] * world

    def swap(self, rank: int, kind: str, values: Array, line: int) -> list[Array]:
        """Wait until every rank has brought its tile ``values``. Return the tiles of all ranks, in order of
        rank.

        Raise KernelCrash if another rank failed, or if another rank calls another kind of collective.
        """
        self._brought[rank] = (kind, values)
        try:
            self._barrier.wait()
            brought = [one for one in self._brought if one is not None]
            self._barrier.wait()
        except threading.BrokenBarrierError:
            crash(
                "this rank waits at a collective that another rank, which failed or has ended, did not reach",
                "collective_ranks", line, _EQUALLY,
            )  # fmt: skip
        if any(other != kind for other, _ in brought):
            self.abort()
            calls = ", ".join(sorted({other for other, _ in brought}))
            crash(f"ranks reach different collectives at the same time: {calls}", "collective_ranks", line, _EQUALLY)
        return [one for _, one in brought]

    def abort(self) -> None:
        """Make all waiting ranks fail. The rank that failed first calls this."""
        self._barrier.abort()


def _member(context: Context) -> Member:
    member = context.machine.member
    if member is None:
        crash(
            f"{context.text('kind') or 'rank_id'} needs several ranks, but the program runs as one", "collective_ranks",
            context.instruction.line, "run it with acceld.nki.execute.ranks.execute_ranks, and give each rank its own inputs",
        )  # fmt: skip
    return member


def _lists(context: Context) -> list[list[int]]:
    ranks, members = context.attr("ranks"), context.attr("members")
    if not isinstance(ranks, tuple) or not isinstance(members, int) or members < 1 or len(ranks) % members:
        crash("a collective does not say which ranks take part", "collective_ranks", context.instruction.line)
    flat = [int(rank) for rank in ranks]
    return [flat[at : at + members] for at in range(0, len(flat), members)]


def collective(context: Context) -> Step:
    """Compile a collective operation, such as an all-reduce: ``dst`` gets what the operation makes of the tiles of all
    ranks.
    """
    kind, op, line = context.text("kind"), context.text("op", "add"), context.instruction.line
    axis = context.attr("axis")
    along = axis if isinstance(axis, int) else 0
    sources = [context.src(number, arranged=False) for number in range(len(context.instruction.srcs))]
    dst, member, lists = context.dst(0, arranged=False), _member(context), _lists(context)
    if kind in _VARIED:
        return _of_run_time_sizes(context, kind)
    if kind not in _KINDS:
        crash(f"{kind!r} is not a collective operation", "operation", line)

    def run(env: Env, window: Window) -> None:
        mine = [np.array(source.load(env, None)) for source in sources]
        brought = member.ranks.swap(member.rank, kind, mine[0] if len(mine) == 1 else combine(op, *mine), line)
        if kind == "collective_permute":
            for source, target in lists:
                if target == member.rank:
                    dst.put(env, None, brought[_known(source, brought, line)])
            return
        group = next((ranks for ranks in lists if member.rank in ranks), None)
        if group is None:
            return
        tiles = [brought[_known(rank, brought, line)] for rank in group]
        dst.put(env, None, _KINDS[kind](tiles, group.index(member.rank), along, op))

    return run


def _of_run_time_sizes(context: Context, kind: str) -> Step:
    """Compile a collective whose sizes are read at run time (``all_gather_v``, ``all_to_all_v``): ``dst`` gets parts
    of the flattened tiles of all ranks of the group.

    Each rank of the group gives one part. Row 3 of the operand with the sizes has the position in ``dst`` at which
    each part is written. Without row 3, ``dst`` is divided into equal slots, and the part of the group's s-th rank is
    written to slot s.
    """
    line, lists, member = context.instruction.line, _lists(context), _member(context)
    source, rows = context.src(0, arranged=False), context.src(1, arranged=False)
    dst = context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        if rows.marked(env, None).any():
            undefined_use("a size in the metadata of a collective", line)
        tiles = member.ranks.swap(member.rank, kind, np.array(source.raw(env, None)), line)
        sizes = member.ranks.swap(member.rank, kind, np.array(rows.raw(env, None), np.int64), line)
        group = next((ranks for ranks in lists if member.rank in ranks), None)
        if group is None:
            return
        place = 0 if kind == "all_gather_v" else group.index(member.rank)
        mine, flat = sizes[member.rank], np.array(dst.raw(env, None)).reshape(-1)
        flat = flat.astype(np.result_type(flat, *tiles))
        slot = flat.size // len(group)
        for number, rank in enumerate(group):
            count, begin = (int(row[place]) for row in sizes[_known(rank, tiles, line)][:2])
            part = tiles[rank].reshape(-1)[begin : begin + count]
            at, room = (int(mine[3][number]), flat.size) if len(mine) == 4 else (number * slot, (number + 1) * slot)
            if part.size != count or at + count > room:
                crash(f"{kind}: {count} elements from element {begin} on do not fit the tiles", "collective_ranks", line,
                      "check the metadata's counts and displacements")  # fmt: skip
            flat[at : at + count] = part
        dst.put(env, None, flat.reshape(dst.shape))

    return run


_VARIED = frozenset({"all_to_all_v", "all_gather_v"})


def _known(rank: int, brought: list[Array], line: int) -> int:
    if rank >= len(brought):
        crash(
            f"a collective names rank {rank}, but only {len(brought)} ranks run", "collective_ranks", line,
            "name ranks from 0 on, or run more ranks",
        )  # fmt: skip
    return rank


def _folded(tiles: list[Array], op: str) -> Array:
    total = tiles[0]
    for tile in tiles[1:]:
        total = combine(op, total, tile)
    return total


def _part(tile: Array, count: int, place: int, axis: int) -> Array:
    return np.split(tile, count, axis=axis)[place]


_KINDS: dict[str, Callable[[list[Array], int, int, str], Array]] = {
    "all_reduce": lambda tiles, place, axis, op: _folded(tiles, op),
    "all_gather": lambda tiles, place, axis, op: np.concatenate(tiles, axis=axis),
    "reduce_scatter": lambda tiles, place, axis, op: _part(_folded(tiles, op), len(tiles), place, axis),
    "all_to_all": lambda tiles, place, axis, op: np.concatenate(
        [_part(tile, len(tiles), place, axis) for tile in tiles], axis=axis
    ),
    "collective_permute": lambda tiles, place, axis, op: tiles[place],
    "collective_permute_implicit": lambda tiles, place, axis, op: tiles[place - 1],
    "collective_permute_implicit_reduce": lambda tiles, place, axis, op: tiles[place - 1],
}


def register_rank(context: Context) -> Step:
    """Compile ``register = number of a rank``: the number of the running rank, or of a rank that comes before it in
    its group.

    Operand 0 says how far before: 0 is the running rank, 1 the previous rank of the group. The group counts as a
    ring, so the last rank comes before the first one.
    """
    number = context.attr("register")
    if not isinstance(number, int) or not 0 <= number < len(context.machine.registers):
        crash("rank_id has no register as its result", "register", context.instruction.line)
    member, lists = _member(context), _lists(context)
    steps = context.number(0)
    group = next((ranks for ranks in lists if member.rank in ranks), [member.rank])
    held = group[(group.index(member.rank) - int(steps)) % len(group)]

    def run(env: Env, window: Window) -> None:
        context.machine.registers[number] = held

    return run
