"""Move copies and element-wise work from a busier engine to another engine that can do them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from acceld.chips import CHIPS
from acceld.model import Profile
from acceld.nki.ir.operations import FLOAT_DTYPES, SCALAR_ENGINE_ALU
from acceld.nki.source.building import replaced
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import engine, operation, prefix
from acceld.nki.source.syntax import COPIES, PRODUCTS, Access, Statement, names_in
from acceld.proposers.rules.profiles import awaited_share, busy_share, path_share
from acceld.proposers.rules.records import Place, Rule, Variant

_REACHED = ("sbuf", "psum")
"""Memories that the vector and the scalar engine reach."""
_BOTH = ("add", "subtract", "multiply", "maximum", "minimum")


class PlaceEngine(Rule):
    """Choose another engine for copies and element-wise work.

    Copies go to the vector or the scalar engine, which both reach PSUM. Element-wise work on tiles in SBUF goes to any
    engine that can do it.
    """

    name = "place_engine"
    reason = (
        "The vector and the scalar engine run side by side. A copy costs one cycle an element on either engine (1.12 "
        "and 1.4 GHz on trn1), so it belongs on the less busy engine."
    )
    source = "nki.isa.tensor_copy: cost max(MIN_II, N) on Vector, Scalar or GpSimd; GpSimd can not reach PSUM"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "engine"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield one place for all copies that name no engine, one for each statement that another engine can run, and
        one for each statement that two other engines can share.
        """
        copies = _copies(kernel)
        if copies:
            yield self._all_copies(kernel, copies, profile)
        for statement in kernel.statements:
            if _is_split_by_engines(kernel, statement, profile):
                yield self._two_engines(kernel, statement, profile)
            others = _other_engines(kernel, statement, profile)
            if others:
                yield self.found(
                    statement.line,
                    partial(_placed, kernel, [statement]),
                    *map(Variant, others),
                    precondition="element-wise work gives the same bits on either engine, and "
                    + ("all tiles of the statement are in SBUF" if "gpsimd" in others else "both engines reach PSUM"),
                    plan=f"Line {statement.line} runs on the vector engine. Put it on {others[0]}, which works at the same time.",
                    benefit=_benefit(profile, statement.line),
                    gain_percent=(-10.0, 15.0),
                    key="alone",
                )

    def _two_engines(self, kernel: KernelModule, statement: Statement, profile: Profile | None) -> Place:
        return self.found(
            statement.line,
            partial(_on_two_engines, kernel, statement),
            Variant("scalar and gpsimd"),
            precondition="the two operations give the same bits on any engine, and all tiles of the statement are in SBUF",
            plan=f"Line {statement.line} does two operations on the vector engine, which alone has them as one instruction. "
            "Put the first one on the scalar engine and the second one on GpSimd, which work at the same time.",
            benefit=0.5 * path_share(profile, statement.line) if busy_share(profile, "vector") > 0.7 else 0.01,
            gain_percent=(-10.0, 10.0),
            key="two",
        )

    def _all_copies(self, kernel: KernelModule, copies: Sequence[Statement], profile: Profile | None) -> Place:
        vector, scalar = busy_share(profile, "vector"), busy_share(profile, "scalar")
        idle, busy = ("scalar", "vector") if vector > scalar else ("vector", "scalar")
        return self.found(
            copies[0].line,
            partial(_placed, kernel, copies),
            Variant(idle),
            Variant(busy),
            precondition="a copy gives the same bits on either engine, and both engines reach the memories of its tiles",
            plan=f"{len(copies)} copies leave their engine to the compiler. Put them on the {idle} engine, which is the "
            "less busy one.",
            benefit=0.15 * min(1.0, abs(vector - scalar)) + 0.02,
            gain_percent=(0.0, 10.0),
        )


def _benefit(profile: Profile | None, line: int) -> float:
    """Return the share of the latency (0 to 1) that may be saved if a line leaves the vector engine."""
    if profile is not None and profile.details.get("critical_path"):
        return max(0.01, path_share(profile, line), awaited_share(profile, {line}, "vector"))
    return 0.05 if busy_share(profile, "vector") > 0.7 else 0.01


def _placed(kernel: KernelModule, copies: Sequence[Statement], variant: Variant) -> str:
    on = engine(kernel, variant.name)
    return replaced(kernel, [], {copy: _on(kernel, copy, on) for copy in copies})


def _on(kernel: KernelModule, statement: Statement, on: str) -> str:
    """Return the text of a statement that runs on the engine ``on``, written as an instruction that names its engine."""
    given = {key: kernel.text(value) for key, value in statement.args.items() if key not in ("mask", "dtype", "engine")}
    if statement.op in COPIES:
        return operation(kernel, statement, "tensor_copy", {"src": given["src"], "engine": on})
    if statement.op == "tensor_scalar":
        return operation(kernel, statement, "tensor_scalar", given | {"engine": on})
    pair = kernel.binary(statement)
    assert pair is not None
    arguments = {"data1": given[pair.left], "data2": given[pair.right], "engine": on}
    op = given["op"] if statement.op == "tensor_tensor" else f"{prefix(kernel, 'language')}.{pair.op}"
    return operation(kernel, statement, "tensor_tensor", {**arguments, "op": op})


def _other_engines(kernel: KernelModule, statement: Statement, profile: Profile | None) -> tuple[str, ...]:
    """Return the other engines that can run a statement on two tiles, or on a tile and a number; () if there are none."""
    named = kernel.text_of(statement, "engine")
    if (
        statement.kind != "op"
        or statement.augmented
        or statement.second is not None
        or (named and "unknown" not in named)
    ):
        return ()
    if statement.target is None:
        return ()
    tiles = {one.name for one in (statement.target, *statement.mentions)}
    if any((dtype := kernel.dtype_of(name)) and dtype not in FLOAT_DTYPES for name in tiles):
        return ()  # GpSimd computes integers exactly, the other engines in float32
    in_sbuf = all(_in_sbuf(kernel, name) for name in tiles)
    if statement.op == "tensor_scalar" and (in_sbuf or all(kernel.space_of(name) in _REACHED for name in tiles)):
        # The scalar engine has tensor_scalar only from NeuronCore-v3 on, and only for a few functions.
        old = profile is not None and profile.chip in CHIPS and CHIPS[profile.chip].generation < 3
        functions = [kernel.text_of(statement, name).rpartition(".")[2] for name in ("op0", "op1")]
        fits = tuple(filter(None, functions)) in SCALAR_ENGINE_ALU and not old
        return (*(("gpsimd",) if in_sbuf else ()), *(("scalar",) if fits else ()))
    if not in_sbuf:
        return ()
    pair = kernel.binary(statement)
    if pair is None or pair.op not in _BOTH or not {pair.left, pair.right} <= set(statement.reads):
        return ()
    shapes = [kernel.extents(statement.reads[one]) for one in (pair.left, pair.right)]
    return () if shapes[0] != shapes[1] else ("gpsimd",)


def _is_split_by_engines(kernel: KernelModule, one: Statement, profile: Profile | None) -> bool:
    """Return True if two engines can share a scalar_tensor_tensor: the scalar engine does its first operation, GpSimd
    its second.
    """
    if one.op != "scalar_tensor_tensor" or one.kind != "op" or kernel.api != "nki" or one.second is not None:
        return False
    if profile is not None and profile.chip in CHIPS and CHIPS[profile.chip].generation < 3:
        return False
    data, other = one.reads.get("data"), one.reads.get("operand1")
    first, second = (kernel.opname(one.args.get(name)) for name in ("op0", "op1"))
    if data is None or other is None or (first,) not in SCALAR_ENGINE_ALU or second not in _BOTH:
        return False
    known = {"data", "op0", "operand0", "op1", "operand1", "reverse1"}
    return (
        one.args.keys() <= known
        and bool(_shape(kernel, one, (data, other)))
        and all(_in_sbuf(kernel, access.name) for access in (one.made, *one.mentions))
        and all(kernel.declared_dtype(access.name).endswith("float32") for access in (one.made, data, other))
    )


def _on_two_engines(kernel: KernelModule, one: Statement, _: Variant) -> str:
    """Return the source with a scalar_tensor_tensor as two instructions, with a tile between them."""
    given = {key: kernel.text(value) for key, value in one.args.items()}
    isa, language = prefix(kernel, "isa"), prefix(kernel, "language")
    between = kernel.fresh(f"{one.made.name}_part")
    reverse = given.get("reverse1") == "True"
    pair = (given["operand1"], between) if reverse else (between, given["operand1"])
    first = {"data": given["data"], "op0": given["op0"], "operand0": given["operand0"]}
    second = {"data1": pair[0], "data2": pair[1], "op": given["op1"], "engine": engine(kernel, "gpsimd")}
    listed = ", ".join(f"{key}={text}" for key, text in first.items())
    shape = _shape(kernel, one, (one.reads["data"], one.reads["operand1"]))
    lines = [
        f"{between} = {language}.ndarray({shape}, dtype={language}.float32, buffer={language}.sbuf)",
        f"{isa}.tensor_scalar(dst={between}, {listed}, engine={engine(kernel, 'scalar')})",
        operation(kernel, one, "tensor_tensor", second),
    ]
    return replaced(kernel, [], {one: f"\n{one.indent}".join(lines)})


def _shape(kernel: KernelModule, one: Statement, operands: Sequence[Access]) -> str:
    """Return the text of the shape that the result of a statement and its ``operands`` have; "" if they are not known to
    have the same shape.

    Shapes with unknown extents, such as ``min(128, height - 128 * row)`` rows, are the same if whole tiles are declared by
    the same text, in the body of the statement, and no name in the text is bound again before the statement.
    """
    shape = kernel.extents(one.made)
    if shape is not None:
        return str(shape) if all(kernel.extents(access) == shape for access in operands) else ""
    tiles = [kernel.buffers.get(access.name) for access in (one.made, *operands) if access.dims is None]
    declared = [tile.declaration for tile in tiles if tile is not None and not tile.partition_axis]
    if len(declared) != 1 + len(operands) or any(each.parent is not one.parent for each in declared):
        return ""
    shapes = [each.args["shape"] for each in declared]
    names = {name.id for name in names_in(shapes[0])}
    since = min(each.start for each in declared)
    between = [item.node for item in kernel.beside(one) if since <= item.start < one.start]
    bound = {name.id for node in between for name in names_in(node) if isinstance(name.ctx, ast.Store)}
    text = kernel.text(shapes[0])
    return text if not names & bound and all(kernel.text(each) == text for each in shapes) else ""


def _in_sbuf(kernel: KernelModule, name: str) -> bool:
    """Return True if a tile is known to be in SBUF. In a legacy kernel that never uses PSUM, all tiles on the chip are in
    SBUF; in the current API a tile that is not declared may be the result of a function in another file.
    """
    if kernel.space_of(name) == "hbm":
        return False
    if kernel.api == "nki":
        return kernel.space_of(name) == "sbuf"
    psum = any(one.op in (*PRODUCTS, "nc_transpose") for one in kernel.statements)
    return kernel.space_of(name) == "sbuf" or not (psum or "psum" in kernel.source)


def _copies(kernel: KernelModule) -> list[Statement]:
    return [
        statement
        for statement in kernel.statements
        if statement.kind == "op"
        and statement.op in COPIES
        and not statement.augmented
        and "engine" not in statement.args
        and "src" in statement.reads
        and kernel.space_of(statement.reads["src"].name) in ("psum", "sbuf")
    ]


RULE = PlaceEngine()
