"""Use scalar registers and barriers, and query the chip."""

from __future__ import annotations

from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import emit, number, tensor
from acceld.nki.frontend.current.tensor import Register
from acceld.nki.ir.program import Engine


def register_alloc(x: object = None) -> Register:
    """Return a new register, set to ``x`` if given."""
    register = Register(current().builder.register())
    if x is not None:
        register_move(register, x) if not isinstance(x, Tensor) else register_load(register, x)
    return register


def register_move(dst: Register, src: object) -> None:
    """Register = number or register."""
    if isinstance(src, Register):
        emit("register_move", Engine.SYNC, [], [0], register=dst.number, source=src.number)
    else:
        emit("register_move", Engine.SYNC, [], [number(src, "src", "register_move")], register=dst.number)


def register_load(dst: Register, src: object) -> None:
    """Register = the one element of a tile or tensor."""
    emit("register_load", Engine.SYNC, [], [tensor(src, "src", "register_load")], register=dst.number)


def register_store(dst: object, src: Register) -> None:
    """The one element of dst = register."""
    emit("register_store", Engine.SYNC, [tensor(dst, "dst", "register_store")], register=src.number)


def scalar_load(src: object) -> Register:
    """Return a new register with the one element of a tile (NKI 0.7)."""
    register = register_alloc()
    register_load(register, src)
    return register


def scalar_store(dst: object, src: Register) -> None:
    """The one element of dst = register (NKI 0.7)."""
    register_store(dst, src)


def core_barrier(data: object, cores: object, engine: object = None, name: str | None = None) -> None:
    """Wait for the other core of the pair."""
    emit("barrier", Engine.GPSIMD, [], [tensor(data, "data", "core_barrier")])


def get_nc_sub_version() -> int:
    """Return 0."""
    return 0
