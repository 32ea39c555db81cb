"""Model the compiler of ``neuronxcc.nki``: the engines that it chooses, the work that it merges, and how it
manages SBUF.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from acceld.nki.ir.program import Access, Engine, Instruction, Loop, LoopKind, Node, Program, Space
from acceld.nki.timing.cost import DMA_OPS, FEW, FREE_OPS, MATMUL_COLUMNS, REGISTER_OPS, SLOW_ALU, CostModel

DEFAULT_ENGINES: dict[str, Engine] = {
    "matmul": Engine.TENSOR,
    "matmul_mx": Engine.TENSOR,
    "broadcast_partition": Engine.TENSOR,
    "transpose": Engine.TENSOR,
    "activation": Engine.SCALAR,
    "activate2": Engine.SCALAR,
    "iota": Engine.GPSIMD,
    "affine_select": Engine.GPSIMD,
    "local_gather": Engine.GPSIMD,
    "gather": Engine.GPSIMD,
    "topk": Engine.GPSIMD,
    "partition_reduce": Engine.GPSIMD,
    "nonzero_with_count": Engine.GPSIMD,
    "sequence_bounds": Engine.GPSIMD,
    "quantize_mx": Engine.GPSIMD,
}
"""The engine that runs an operation by default. Operations that are missing run on the vector engine."""


def place(instruction: Instruction, model: CostModel) -> Engine:
    """Return the engine that runs ``instruction``: the engine that the instruction names, else the engine that the
    compiler chooses.

    The compiler chooses the scalar engine for copies, and for a tensor_scalar on more than a few elements. It
    chooses the vector engine for most other operations (source: engine activity of the measured kernels).
    """
    op = instruction.op
    if op in DMA_OPS:
        return Engine.DMA
    if op in FREE_OPS or op in REGISTER_OPS:
        return Engine.SYNC
    if instruction.engine is not Engine.UNKNOWN:
        return instruction.engine
    found = DEFAULT_ENGINES.get(op)
    if found is not None:
        return found
    if is_slow(instruction):
        return Engine.GPSIMD
    if op == "copy":
        return Engine.SCALAR
    if op == "tensor_scalar" and _elements(instruction) > model.params.small_operand_elements:
        return Engine.SCALAR
    return Engine.VECTOR


def is_slow(instruction: Instruction) -> bool:
    """Tell whether an instruction is a tensor_scalar with an ALU function that only GpSimd has, on more than a few
    elements.

    The result is False for few elements. On few elements such a function takes no longer than any other function, and
    no counters show which engine runs it.
    """
    functions = {instruction.attr("op0"), instruction.attr("op1")}
    return instruction.op == "tensor_scalar" and bool(functions & SLOW_ALU) and _elements(instruction) > FEW


def _elements(instruction: Instruction) -> int:
    return prod(instruction.dsts[0].shape[1:])


MERGED_OPS = frozenset({"tensor_tensor", "tensor_reduce", "copy", "reciprocal"})
"""Operations whose operands are all tiles. One machine instruction can do the work of several iterations of a loop over
such an operation.
"""

ELEMENTWISE_OPS = MERGED_OPS | frozenset({"activation", "tensor_scalar", "scalar_tensor_tensor", "select"})
"""Operations that compute each element of a partition in the same way. Operands that are not tiles of the same shape
have one element in each partition.
"""


def merged_iterations(loop: Loop, model: CostModel) -> dict[int, int]:
    """Return, by the position of an instruction in ``loop.body``, how many iterations of ``loop`` one machine
    instruction covers.

    Without an entry, a machine instruction covers one iteration. Only innermost affine loops have entries.
    """
    nodes = [node for node in loop.body if isinstance(node, Instruction)]
    if loop.kind is not LoopKind.AFFINE or len(nodes) < len(loop.body):
        return {}
    return _beside(nodes, loop, model) if model.params.merges_beside else _short(nodes, loop, model)


def _short(nodes: list[Instruction], loop: Loop, model: CostModel) -> dict[int, int]:
    """Return, as a dict by position, how many iterations one machine instruction covers in a loop of short element-wise
    instructions.

    If the elements of all iterations of an instruction fit a bank of PSUM (512 elements of a partition), the
    compiler merges all iterations. In a longer loop the compiler merges :attr:`TimelineParams.merged_iterations`
    iterations of two kinds of instruction: instructions with an operand in PSUM, and instructions whose result is only
    used by merged instructions with an operand in PSUM.
    """
    few = model.params.merged_iterations
    if not few or not all(_mergeable(n, loop, model) for n in nodes):
        return {}
    counts = {at: loop.trips for at, node in enumerate(nodes) if _elements_of(node) * loop.trips <= MATMUL_COLUMNS}
    for at, node in enumerate(nodes):
        if at in counts or loop.trips % few or _elements_of(node) * few > MATMUL_COLUMNS:
            continue
        read = [i for i, other in enumerate(nodes) if any(a.buffer == node.dsts[0].buffer for a in _tiles(other))]
        if _in_psum(node, model) or (read and all(i in counts and _in_psum(nodes[i], model) for i in read)):
            counts[at] = few
    return counts


def _beside(nodes: list[Instruction], loop: Loop, model: CostModel) -> dict[int, int]:
    """Return, as a dict by position, how many iterations one machine instruction covers in a loop whose tiles lie side
    by side.

    The compilers of Trainium 2 and later chips let one instruction cover as many iterations as fill a bank of PSUM.
    Each tile must be declared in the loop, or begin where the tile of the previous iteration ends. Products are not
    merged, but the results of several products share one bank.

    Some tiles can not grow: a product's stationary operand, and every tile that an unmerged instruction uses.
    Instructions with such a tile are not merged.
    """
    widths = {at: _elements_of(node) for at, node in enumerate(nodes) if _grows(node, loop, model)}
    while True:
        single = {
            access.buffer
            for at, node in enumerate(nodes)
            if at not in widths
            for access in node.accesses
            if loop.id in model.buffers[access.buffer].scope and not _product_in_psum(node, access, model)
        }
        kept = {at: width for at, width in widths.items() if not any(a.buffer in single for a in nodes[at].accesses)}
        if len(kept) == len(widths):
            break
        widths = kept
    if not widths:
        return {}
    many = max(MATMUL_COLUMNS // max(widths.values()), 1)
    count = max(n for n in range(1, min(many, loop.trips) + 1) if loop.trips % n == 0) if loop.trips else 1
    return dict.fromkeys(widths, count) if count > 1 else {}


def _grows(node: Instruction, loop: Loop, model: CostModel) -> bool:
    """Tell whether one machine instruction can do the work of ``node`` in several iterations of ``loop``."""
    if node.mask or len(node.dsts) != 1 or any(access.indirect for access in node.accesses):
        return False
    if node.op == "matmul":
        stationary, moving = _tiles(node)[:2]
        fixed = stationary.buffer != moving.buffer and not _varies(stationary, loop, model)
        return (
            fixed
            and not node.attr("transpose")
            and _lies_beside(moving, loop, model)
            and _private(node.dsts[0], loop, model)
        )
    if node.op not in ELEMENTWISE_OPS and node.op != "dma_copy":
        return False
    if node.op == "tensor_reduce" or node.attr("reduce_cmd") is not None:
        return False
    width = prod(node.dsts[0].shape[1:])
    small = [src for src in _tiles(node) if prod(src.shape[1:]) == 1 < width and not _varies(src, loop, model)]
    wide = [access for access in node.accesses if access not in small]
    return all(_lies_beside(access, loop, model) for access in wide)


def _private(access: Access, loop: Loop, model: CostModel) -> bool:
    return loop.id in model.buffers[access.buffer].scope


def _varies(access: Access, loop: Loop, model: CostModel) -> bool:
    """Tell whether ``access`` covers a different tile in each iteration of ``loop``."""
    return _private(access, loop, model) or any(term[0] == loop.id for start in access.start for term in start.terms)


def _lies_beside(access: Access, loop: Loop, model: CostModel) -> bool:
    """Tell whether ``access``'s tile is declared in ``loop``, or begins where the previous iteration's tile ends."""
    if _private(access, loop, model):
        return True
    moves = [(at, coef) for at, start in enumerate(access.start) for number, coef in start.terms if number == loop.id]
    last = len(access.start) - 1
    return moves == [(last, access.shape[-1])] and access.dims[-1].steps[last] == 1 and len(access.shape) == 2


def _product_in_psum(node: Instruction, access: Access, model: CostModel) -> bool:
    """Tell whether ``node`` is a matrix product or a transpose, and ``access`` is its result in PSUM."""
    written = access in node.dsts and node.op in ("matmul", "transpose")
    return written and model.buffers[access.buffer].space is Space.PSUM


def _mergeable(node: Instruction, loop: Loop, model: CostModel) -> bool:
    """Tell whether each iteration of ``loop`` applies ``node`` to other elements of the same partitions."""
    if node.op not in MERGED_OPS or node.mask or len(node.dsts) != 1 or node.engine is Engine.GPSIMD:
        return False
    for access in node.accesses:
        buffer = model.buffers[access.buffer]
        if access.indirect or any(term[0] == loop.id for term in access.start[buffer.partition_axis].terms):
            return False
    dst = node.dsts[0]
    private = loop.id in model.buffers[dst.buffer].scope
    return private or any(term[0] == loop.id for start in dst.start for term in start.terms)


def _tiles(node: Instruction) -> list[Access]:
    return [src for src in node.srcs if isinstance(src, Access)]


def _elements_of(node: Instruction) -> int:
    """Return the number of elements in each partition of the widest tile of ``node``."""
    return max(prod(access.shape[1:]) for access in node.accesses)


def _in_psum(node: Instruction, model: CostModel) -> bool:
    return any(model.buffers[access.buffer].space is Space.PSUM for access in node.accesses)


TWIN = "twin"
"""Name of the attribute that marks instructions which :func:`sums_apart` added."""


def sums_apart(program: Program) -> Program:
    """Return ``program`` with each activation that also reduces split into two instructions, because the compilers of
    later chips split it.

    One instruction writes the tile, and the other writes the sums. Each loads and computes its operands for itself.
    Return ``program`` itself if no activation has both a tile and sums that are used. Source: in KDA's two kernels
    with such an activation, the chip's counters show products, copies out of PSUM and bytes read twice, and bytes
    written once.
    """
    nodes = [node for node, _ in program.walk()]
    used = {src.buffer for node in nodes for src in node.srcs if isinstance(src, Access)}
    split = {
        id(node)
        for node in nodes
        if node.op == "activation" and len(node.dsts) == 2 and all(dst.buffer in used for dst in node.dsts)
    }
    if not split:
        return program
    leading = {src.buffer for node in nodes if id(node) in split for src in node.srcs if isinstance(src, Access)} & {
        buffer.id for buffer in program.buffers if buffer.space is not Space.HBM
    }
    while True:
        more = {
            src.buffer
            for node in nodes
            if id(node) not in split and any(dst.buffer in leading for dst in node.dsts)
            for src in node.srcs
            if isinstance(src, Access) and program.buffers[src.buffer].space is not Space.HBM
        }
        if more <= leading:
            break
        leading |= more
    doubled = sorted(leading | {node.dsts[0].buffer for node in nodes if id(node) in split})
    twins = {buffer: len(program.buffers) + at for at, buffer in enumerate(doubled)}
    buffers = (*program.buffers, *(replace(program.buffers[buffer], id=twin) for buffer, twin in twins.items()))

    def twin(access: Access) -> Access:
        return replace(access, buffer=twins.get(access.buffer, access.buffer))

    def copied(node: Instruction) -> Instruction:
        return replace(
            node,
            dsts=(twin(node.dsts[0]), *node.dsts[1:]),
            srcs=tuple(twin(src) if isinstance(src, Access) else src for src in node.srcs),
            attrs=(*node.attrs, (TWIN, True)),
        )

    def body(children: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for child in children:
            if isinstance(child, Loop):
                found.append(replace(child, body=body(child.body)))
            elif id(child) in split:
                attrs = tuple((name, value) for name, value in child.attrs if not name.startswith("reduce_"))
                found += [replace(child, dsts=child.dsts[:1], attrs=attrs), copied(child)]
            elif any(dst.buffer in leading for dst in child.dsts):
                found += [child, copied(child)]
            else:
                found.append(child)
        return tuple(found)

    return replace(program, buffers=buffers, body=body(program.body))
