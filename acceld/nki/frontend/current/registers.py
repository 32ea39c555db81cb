"""Use scalar registers and barriers, and query the chip."""

from __future__ import annotations

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import emit, number, tensor
from acceld.nki.frontend.current.tensor import Register
from acceld.nki.ir.program import Engine


def _register(value: object, name: str, call: str) -> Register:
    if isinstance(value, Register):
        return value
    refuse(
        "operand_type",
        f"operand '{name}' of '{call}' must be a register, not {type(value).__name__}",
        "nisa.register_alloc(5) makes one of a number, nisa.scalar_load of a tile's one element",
    )


def register_alloc(x: object = None) -> Register:
    """Return a new register, set to ``x`` if given."""
    register = Register(current().builder.register())
    if x is not None:
        _load(register, x, "register_alloc") if isinstance(x, Tensor) else _move(register, x, "register_alloc")
    return register


def register_move(dst: object, src: object) -> None:
    """Register = number or register."""
    _move(dst, src, "register_move")


def _move(dst: object, src: object, call: str) -> None:
    target = _register(dst, "dst", call)
    if isinstance(src, Register):
        emit("register_move", Engine.SYNC, [], [0], register=target.number, source=src.number)
    else:
        emit("register_move", Engine.SYNC, [], [number(src, "src", call)], register=target.number)


def register_load(dst: object, src: object) -> None:
    """Register = the one element of a tile or tensor."""
    _load(dst, src, "register_load")


def _load(dst: object, src: object, call: str) -> None:
    target = _register(dst, "dst", call)
    emit("register_load", Engine.SYNC, [], [tensor(src, "src", call)], register=target.number)


def register_store(dst: object, src: object) -> None:
    """The one element of dst = register."""
    _store(dst, src, "register_store")


def _store(dst: object, src: object, call: str) -> None:
    emit("register_store", Engine.SYNC, [tensor(dst, "dst", call)], register=_register(src, "src", call).number)


def scalar_load(src: object) -> Register:
    """Return a new register with the one element of a tile (NKI 0.7)."""
    register = register_alloc()
    _load(register, src, "scalar_load")
    return register


def scalar_store(dst: object, src: object) -> None:
    """The one element of dst = register (NKI 0.7)."""
    _store(dst, src, "scalar_store")


def core_barrier(data: object, cores: object, engine: object = None, name: str | None = None) -> None:
    """Wait for the other core of the pair."""
    emit("barrier", Engine.GPSIMD, [], [tensor(data, "data", "core_barrier")])


def get_nc_sub_version() -> int:
    """Return 0."""
    return 0
