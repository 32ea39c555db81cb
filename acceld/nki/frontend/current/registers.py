"""Provide scalar registers and barriers of ``nki.isa``, and the chip's sub-version."""

from __future__ import annotations

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import emit, int32, integers, tensor
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.frontend.current.tensor import Register
from acceld.nki.ir.program import Engine, Role, Space

WIDTHS = ("int32", "int64")
"""Dtypes that ``scalar_load`` and ``scalar_store`` take."""


def _register(value: object, name: str, call: str) -> Register:
    """Return ``value`` if it is a register. Raise LegalityError for any other value."""
    if isinstance(value, Register):
        return value
    refuse(
        "operand_type",
        f"operand '{name}' of '{call}' must be a register, not {type(value).__name__}",
        "make a register with nisa.register_alloc(5), or with nisa.scalar_load from a tile of one element",
    )


def _written(value: object, call: str) -> Register:
    """Return ``value`` if it is a register that a kernel may write. Raise LegalityError for any other value."""
    target = _register(value, "dst", call)
    if target.loop:
        refuse(
            "control_flow",
            f"'{call}' writes the index of {target.loop}, which only the loop itself counts (NKI 0.4 and later)",
            "write to a register of your own: nisa.register_alloc()",
        )
    return target


def register_alloc(x: object = None) -> Register:
    """Return a new register that holds ``x``: a number, the value of another register, or the one element of a
    tile.

    Without ``x`` the register has no value yet.
    """
    register = Register(current().builder.register())
    if x is not None:
        _load(register, x, "register_alloc") if isinstance(x, Tensor) else _move(register, x, "register_alloc")
    return register


def register_move(dst: object, src: object) -> None:
    """Set the register dst to a number or to the value of another register."""
    _move(dst, src, "register_move")


def _move(dst: object, src: object, call: str) -> None:
    """Set the register dst to a number or to the value of another register. ``call`` names the NKI function in
    messages.
    """
    target = _written(dst, call)
    if isinstance(src, Register):
        emit("register_move", Engine.SYNC, [], [0], register=target.number, source=src.number)
    else:
        emit("register_move", Engine.SYNC, [], [int32(src, "src", call, unsigned=True)], register=target.number)


def register_load(dst: object, src: object) -> None:
    """Set the register dst to the one element of a tile or tensor."""
    _load(dst, src, "register_load")


def _one_element(source: Tensor, call: str) -> None:
    """Raise LegalityError for a tile that has several elements or is in PSUM."""
    if source.size != 1:
        refuse(
            "operand_shape",
            f"'{call}' got a tile of shape {list(source.shape)}, and a register holds one element",
            "index one element",
        )
    if source.space is Space.PSUM:
        refuse("address_space", f"'{call}' can not access PSUM", "use a tile in SBUF, and nisa.tensor_copy")


def _load(dst: object, src: object, call: str) -> None:
    """Set the register dst to the one element of src. ``call`` names the NKI function in messages."""
    target, source = _written(dst, call), tensor(src, "src", call)
    _one_element(source, call)
    if source.dtype_name == "int64" and not target.dtype:
        refuse(
            "dtype", f"'{call}' can not load int64: its register has 32 bits", "use nisa.scalar_load, from NKI 0.7 on"
        )
    emit("register_load", Engine.SYNC, [], [source], register=target.number)


def register_store(dst: object, src: object) -> None:
    """Set the one element of dst to the value of a register."""
    _store(dst, src, "register_store")


def _store(dst: object, src: object, call: str) -> None:
    """Set the one element of dst to the value of a register. ``call`` names the NKI function in messages."""
    target = tensor(dst, "dst", call)
    _one_element(target, call)
    emit("register_store", Engine.SYNC, [target], register=_register(src, "src", call).number)


def scalar_load(src: object) -> Register:
    """Return a new register with the one element of a tile of int32 or int64. Exists from NKI 0.7 on."""
    source = tensor(src, "src", "scalar_load")
    if source.dtype_name not in WIDTHS:
        refuse(
            "dtype", f"'scalar_load' can not load {source.dtype_name}", "load int32 or int64, or use nisa.register_load"
        )
    register = Register(current().builder.register(), source.dtype_name)
    _load(register, source, "scalar_load")
    return register


def scalar_store(dst: object, src: object) -> None:
    """Set the one element of dst, of int32 or int64, to the value of a register. Exists from NKI 0.7 on."""
    target, register = tensor(dst, "dst", "scalar_store"), _register(src, "src", "scalar_store")
    if target.dtype_name not in WIDTHS or target.dtype_name != (register.dtype or target.dtype_name):
        refuse(
            "dtype",
            f"'scalar_store' can not write {register.dtype or 'a scalar'} to {target.dtype_name}: both must have the same width",
            "store to a tile of the scalar's type, int32 or int64, and convert there",
        )
    _store(target, register, "scalar_store")


def core_barrier(data: object, cores: object, engine: object = None, name: str | None = None) -> None:
    """Wait until the other physical core of the logical core reaches the same barrier."""
    shared, trace = tensor(data, "data", "core_barrier"), current_trace()
    wrong = ""
    if trace.session.lnc != 2:
        wrong = "in a launch on one core"
    elif integers(cores, "cores of core_barrier") != (0, 1):
        wrong = f"of cores {cores}"
    if wrong:
        refuse("exchange_cores", f"'core_barrier' {wrong}", "launch with lnc 2, and pass cores (0, 1)")
    if shared.space is not Space.HBM:
        trace.notice(
            f"core_barrier on {shared.label} on chip: the page of nki.isa names data in HBM, AWS's own library has both",
        )
    elif (
        trace.builder.buffers[shared.access.buffer].role is Role.SCRATCH
        and shared.access.buffer not in trace.shared_results
    ):
        trace.notice(f"core_barrier on {shared.label}: the page of nki.isa asks for data in nl.shared_hbm")
    emit("barrier", Engine.GPSIMD, [], [shared])


def get_nc_sub_version() -> int:
    """Return the sub-version of the chip, which is always 0."""
    return 0
