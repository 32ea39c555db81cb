"""Find the variables of a function whose values no later statement uses, so that they need not be compared.

A variable is *live* at an instruction of the byte code if some path from there reads the variable before it is assigned.
A variable that is not live is *dead*: its value decides nothing.
"""

from __future__ import annotations

import dis
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType

_CACHE, _EXTENDED_ARG, _FOR_ITER = dis.opmap.get("CACHE", 0), dis.opmap["EXTENDED_ARG"], dis.opmap["FOR_ITER"]
_USES = {
    number: tuple([verb == "STORE" for verb in re.findall("([A-Z]+)_FAST", name)])
    for name, number in dis.opmap.items()
    if "_FAST" in name
}
"""For each instruction that uses variables, whether it assigns them. Some versions of Python have instructions that use
two variables, whose numbers are the two halves of the argument.
"""
_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs, *getattr(dis, "hasjump", ())])
_BACK = frozenset(number for number in _JUMPS if "BACKWARD" in dis.opname[number])
_ENDS = frozenset(
    number
    for name, number in dis.opmap.items()
    if re.match("RETURN_(?!GEN)|RAISE_|RERAISE|JUMP_(FORWARD|BACKWARD)", name)
)
"""Instructions after which Python does not run the next one."""
_known: dict[int, tuple[CodeType, Mapping[int, frozenset[str]]]] = {}
"""Results of :func:`_dead_by_loop` by the identity of the code object."""


def dead_names(frame: FrameType) -> frozenset[str]:
    """Return the variables that are dead at the start of each iteration of the ``for`` loop that ``frame`` is running.

    The result is empty if the frame is not at the head of such a loop, or if its function has a ``try`` or a ``with``
    statement.
    """
    code = frame.f_code
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= 256:
            _known.clear()
        known = _known[id(code)] = code, _dead_by_loop(code)
    return known[1].get(frame.f_lasti, frozenset())


def _dead_by_loop(code: CodeType) -> Mapping[int, frozenset[str]]:
    """Return the dead variables by the offset of each ``FOR_ITER`` instruction."""
    if code.co_exceptiontable:
        return {}
    steps = list(_steps(code))
    offsets = [step[0] for step in steps]
    places = [None if target is None else bisect_left(offsets, target) for _, _, target, _ in steps]
    live = [0] * (len(steps) + 1)
    """For each step the variables that are live before it, as bits; none behind the last one."""
    changed = True
    while changed:
        changed = False
        for at in range(len(steps) - 1, -1, -1):
            _, operation, _, uses = steps[at]
            place = places[at]
            found = 0 if operation in _ENDS else live[at + 1]
            if place is not None:
                found |= live[place]
            for bit, assigns in reversed(uses):
                found = found & ~bit if assigns else found | bit
            if found != live[at]:
                live[at], changed = found, True
    names = [(1 << place, name) for place, name in enumerate(code.co_varnames) if name not in code.co_cellvars]
    return {
        offset: frozenset([name for bit, name in names if not live[at + 1] & bit])
        for at, (offset, operation, _, _) in enumerate(steps)
        if operation == _FOR_ITER
    }


def _steps(code: CodeType) -> Iterator[tuple[int, int, int | None, list[tuple[int, bool]]]]:
    """Yield (offset, opcode, offset to which it may jump, uses of variables) of each byte code instruction that jumps,
    ends or uses variables.

    A use is (the variable's bit, whether the variable is assigned).
    """
    raw, extended = code.co_code, 0
    for offset in range(0, len(raw), 2):
        operation, argument = raw[offset], raw[offset + 1] | extended
        extended = argument << 8 if operation == _EXTENDED_ARG else 0
        if operation in _USES:
            verbs = _USES[operation]
            numbers = [argument] if len(verbs) == 1 else [argument >> 4, argument & 15]
            yield offset, operation, None, [(1 << one, assigns) for one, assigns in zip(numbers, verbs, strict=True)]
        elif operation in _JUMPS:
            after = offset + 2
            while after < len(raw) and raw[after] == _CACHE:
                after += 2
            yield offset, operation, after + (-2 if operation in _BACK else 2) * argument, []
        elif operation in _ENDS:
            yield offset, operation, None, []
