"""Provide ``nki.collectives``: operations in which several ranks take part.

:mod:`acceld.nki.execute.ranks` computes the values of their results. They have no predicted latency, because no figures
are published. A replica group consists of lists of ranks, its *groups*. A collective works inside each group.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.signatures import checked
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.isa import NkiInstruction
from acceld.nki.frontend.current.language import NKIObject
from acceld.nki.frontend.current.lifetimes import options_of
from acceld.nki.frontend.current.operands import alu_op, check_options, check_priority, tensor
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.frontend.current.tensor import NkiTensor, Register
from acceld.nki.ir.program import Attr, Engine, Space

FOLDS = ("add", "min", "max")
MAX_CHANNELS = 4
"""Greatest number of channels of a collective_permute_implicit, for groups of all devices of a node (its page, 0.6)."""


class rg_partition_op(Enum):  # the API's name
    """The functions by which ``ReplicaGroup.from_partition_op`` assigns ranks to groups (NKI 0.7)."""

    bitwise_and = "and"
    div = "div"
    mod = "mod"


class ReplicaGroup(NKIObject):
    """Groups of ranks, each a list of ranks. A collective works inside each group."""

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        super().__init__(groups=[[operator.index(rank) for rank in ranks] for ranks in groups])

    @staticmethod
    def from_partition_op(world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """Return groups of the ranks 0 to ``world_size`` - 1. Two ranks are in one group if ``op`` gives the
        same number for both.
        """
        number: Callable[[int], int] = {
            rg_partition_op.bitwise_and: lambda rank: rank & operand,
            rg_partition_op.div: lambda rank: rank // operand,
            rg_partition_op.mod: lambda rank: rank % operand,
        }[op]
        lists: dict[int, list[int]] = {}
        for rank in range(world_size):
            lists.setdefault(number(rank), []).append(rank)
        return ReplicaGroup(list(lists.values()))


ReplicaGroup.__module__ = rg_partition_op.__module__ = "nki.collectives"


def _groups(value: object, call: str) -> dict[str, Attr]:
    """Return a replica group as attributes of an instruction: the ranks of all lists one after another, and the
    length of a list.

    Raise LegalityError if the lists differ in length, or if a rank is in two lists.
    """
    lists: Any = getattr(value, "groups", value)
    if not lists or len({len(ranks) for ranks in lists}) != 1 or not lists[0]:
        refuse(
            "replica_group",
            f"the lists of the replica group of '{call}' do not have equally many ranks, or are empty",
            "pass a nki.collectives.ReplicaGroup whose lists have equally many ranks",
        )
    ranks = tuple(operator.index(rank) for one in lists for rank in one)
    if len(set(ranks)) != len(ranks) or min(ranks) < 0:
        refuse(
            "replica_group",
            f"a rank is negative, or in two lists of the replica group of '{call}': name each rank once",
        )
    return {"ranks": ranks, "members": len(lists[0])}


def _pairs(
    srcs: object, dsts: object, call: str, *, in_hbm: bool = False, alone: bool = False
) -> list[tuple[Tensor, Tensor]]:
    """Return each source with its destination.

    Raise LegalityError unless there are as many destinations as sources, and either all of them are in HBM or there
    is a single source in SBUF. With ``in_hbm``, a source in SBUF is refused. With ``alone``, several sources are
    refused.
    """
    lists = []
    for word, given in (("srcs", srcs), ("dsts", dsts)):
        one = cast("Sequence[object]", given if isinstance(given, list | tuple) else [given])
        lists.append([tensor(item, word, call) for item in one])
    sources, targets = lists
    if len(sources) != len(targets) or not sources:
        refuse(
            "operand_type", f"'{call}' got {len(sources)} srcs and {len(targets)} dsts: pass the same number of both"
        )
    spaces = {one.space for one in (*sources, *targets)}
    if len(spaces) != 1 or Space.PSUM in spaces:
        refuse(
            "address_space",
            f"the tensors of '{call}' are in different memories, or in PSUM: put all in HBM, or all in SBUF",
        )
    if in_hbm and Space.SBUF in spaces:
        refuse("address_space", f"'{call}' can not take tensors in SBUF", "copy them to HBM with nisa.dma_copy")
    if alone and len(sources) > 1:
        refuse("operand_type", f"'{call}' got {len(sources)} tensors", "pass one src and one dst, in lists")
    if len(sources) > 1 and Space.SBUF in spaces:
        refuse("operand_type", f"'{call}' got {len(sources)} tensors in SBUF: put them in HBM, or pass one at a time")
    return list(zip(sources, targets, strict=True))


def _check_channels(channel_ids: Sequence[int], srcs_by_channel: Sequence[object], call: str) -> None:
    """Raise LegalityError unless ``channel_ids`` are 0, 1, 2 and so on, one for each list of sources, and at most four
    (page of nki.collectives, 0.6).
    """
    ids, count = [operator.index(one) for one in channel_ids], len(srcs_by_channel)
    if ids != list(range(count)) or count > MAX_CHANNELS:
        refuse(
            "operand_type",
            f"'{call}' got channel_ids {ids} for {count} lists of sources",
            f"number the channels from 0, one for each list, and use at most {MAX_CHANNELS}",
        )


def _emit(kind: str, source: Tensor, target: Tensor, shape: tuple[int, ...], **attrs: Attr) -> None:
    """Emit one collective from ``source`` to ``target``. Raise LegalityError unless ``target`` has ``shape``
    and the source's dtype.
    """
    if target.shape != shape or target.dtype_name != source.dtype_name:
        refuse(
            "shape",
            f"the dst of '{kind}' is {list(target.shape)} {target.dtype_name}: declare it as {list(shape)} {source.dtype_name}",
        )
    current().emit("collective", Engine.DMA, [target], [source], attrs={"kind": kind, **attrs})


def _axis(dim: object, source: Tensor, call: str, allowed: tuple[int, ...] = (0,)) -> int:
    """Return the axis that a ``collective_dim=`` argument names. Raise LegalityError if the collective can not
    use that axis.
    """
    axis = operator.index(cast("Any", dim))
    if axis not in (allowed if source.space is Space.HBM else (0, 1)) or axis >= source.ndim:
        refuse("operand_type", f"'{call}' can not work along collective_dim {axis}", "use 0")
    return axis


def _fold(op: object, call: str) -> str:
    """Return the name in Programs of the operation with which a collective reduces. Raise LegalityError for any but
    add, min and max.
    """
    word = alu_op(op)
    if word not in FOLDS:
        refuse("alu_op", f"'{call}' can not reduce with {word}", "use nl.add, nl.minimum or nl.maximum")
    return word


def _scaled(shape: tuple[int, ...], axis: int, times: int, parts: int = 1) -> tuple[int, ...]:
    """Return ``shape`` with its size along ``axis`` multiplied by ``times`` and divided by ``parts``. Raise
    LegalityError if ``parts`` does not divide the size.
    """
    if shape[axis] % parts:
        refuse(
            "shape",
            f"axis {axis} of a tensor {list(shape)} can not be divided evenly among {parts} ranks: make its size a multiple of {parts}",
        )
    return (*shape[:axis], shape[axis] * times // parts, *shape[axis + 1 :])


def all_reduce(
    srcs: object, dsts: object, replica_group: object, op: object, priority: object = None, name: str | None = None
) -> None:
    """Set each dst to its src folded with op over all ranks of this rank's group."""
    check_priority(priority, "all_reduce")
    groups, word = _groups(replica_group, "all_reduce"), _fold(op, "all_reduce")
    for source, target in _pairs(srcs, dsts, "all_reduce"):
        _emit("all_reduce", source, target, source.shape, op=word, **groups)


def all_gather(
    srcs: object, dsts: object, replica_group: object, collective_dim: int, priority: object = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Set each dst to the srcs of all ranks of this rank's group, joined in the order of the ranks along axis
    ``collective_dim``.
    """
    check_priority(priority, "all_gather")
    groups = _groups(replica_group, "all_gather")
    for source, target in _pairs(srcs, dsts, "all_gather"):
        axis = _axis(collective_dim, source, "all_gather")
        shape = _scaled(source.shape, axis, cast("int", groups["members"]))
        _emit("all_gather", source, target, shape, axis=axis, **groups)


def reduce_scatter(
    srcs: object, dsts: object, replica_group: object, collective_dim: int, op: object, priority: object = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Fold each src with op over all ranks of this rank's group, and set dst to this rank's part of the result
    along axis ``collective_dim``.
    """
    check_priority(priority, "reduce_scatter")
    groups, word = _groups(replica_group, "reduce_scatter"), _fold(op, "reduce_scatter")
    for source, target in _pairs(srcs, dsts, "reduce_scatter"):
        axis = _axis(collective_dim, source, "reduce_scatter")
        shape = _scaled(source.shape, axis, 1, cast("int", groups["members"]))
        _emit("reduce_scatter", source, target, shape, axis=axis, op=word, **groups)


def all_to_all(
    srcs: object, dsts: object, replica_group: object, collective_dim: int, priority: object = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Send part i of each src along axis ``collective_dim`` to rank i of this rank's group, and set dst to the
    received parts.
    """
    check_priority(priority, "all_to_all")
    groups = _groups(replica_group, "all_to_all")
    for source, target in _pairs(srcs, dsts, "all_to_all", in_hbm=True):
        axis = _axis(collective_dim, source, "all_to_all")
        _scaled(source.shape, axis, 1, cast("int", groups["members"]))
        _emit("all_to_all", source, target, source.shape, axis=axis, **groups)


@dataclass(frozen=True, slots=True)
class PreparedCollective(NkiInstruction):
    """The result of a ``..._prepare`` call: a checked collective that the matching ``..._trigger`` call emits."""

    kind: str
    emitting: Callable[[], None]


def _varied(
    kind: str, srcs: object, dsts: object, replica_group: object, metadata_tensor: object, counts: bool, displaced: bool
) -> Callable[[], None]:
    """Check a collective whose sizes are known only at run time, and return the function that emits it."""
    groups, pairs = _groups(replica_group, kind), _pairs(srcs, dsts, kind)
    rows = tensor(metadata_tensor, "metadata_tensor", kind)
    members = cast("int", groups["members"])
    ((source, target),) = (
        pairs
        if len(pairs) == 1
        else refuse("operand_type", f"'{kind}' got {len(pairs)} tensors", "pass one src and one dst")
    )
    if rows.space is Space.SBUF:
        unsupported(f"metadata_tensor of {kind} in SBUF is not simulated", "copy it to HBM with nisa.dma_copy")
    if {source.space, target.space, rows.space} != {Space.HBM}:
        refuse("address_space", f"tensors of '{kind}' must be in HBM", "copy them there with nisa.dma_copy")
    least = 4 if displaced else 3 if counts else 2
    if rows.dtype_name != "uint32" or rows.ndim != 2 or not least <= rows.shape[0] <= 4 or rows.shape[1] != members:
        refuse(
            "shape",
            f"metadata_tensor of '{kind}' is {list(rows.shape)} {rows.dtype_name}",
            f"pass uint32 of {least} to 4 rows (counts and displacements sent, then received) and {members} columns",
        )
    if source.dtype_name != target.dtype_name:
        refuse(
            "dtype", f"'{kind}' can not cast {source.dtype_name} to {target.dtype_name}: give src and dst the same type"
        )
    used = cast("NkiTensor", rows)[0 : 4 if displaced else 2, :]
    current().notice(
        f"{kind}: the simulator writes no received counts into metadata_tensor, because no page of NKI says that {kind} does"
    )

    def emit_now() -> None:
        current().emit("collective", Engine.DMA, [target], [source, used], attrs={"kind": kind, **groups})

    return emit_now


def all_to_all_v(
    srcs: object, dsts: object, replica_group: object, metadata_tensor: object, recv_counts_known: bool = False,
    has_rdispls: bool = False, priority: object = None, name: str | None = None,
) -> None:  # fmt: skip
    """Send a part of src to each rank ``d`` of this rank's group. Column ``d`` of the metadata has the part's size
    and position.
    """
    _varied("all_to_all_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls)()


def all_gather_v(
    srcs: object, dsts: object, replica_group: object, metadata_tensor: object, recv_counts_known: bool = False,
    has_rdispls: bool = False, priority: object = None, name: str | None = None,
) -> None:  # fmt: skip
    """Send one part of src to all ranks of this rank's group. The first column of the metadata has the part's size
    and position.
    """
    _varied("all_gather_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls)()


def _prepare(kind: str) -> Callable[..., NkiInstruction]:
    """Return the function ``KIND_prepare``, which checks a collective and returns it for ``KIND_trigger``."""

    def prepare(
        srcs: object, dsts: object, replica_group: object, metadata_tensor: object, recv_counts_known: bool = False,
        has_rdispls: bool = False, priority: object = None, name: str | None = None,
    ) -> NkiInstruction:  # fmt: skip
        trace = current_trace()
        if trace.prepared is not None:
            refuse(
                "collective_order", f"'{kind}_prepare' comes before the trigger of the collective that line {trace.prepared} prepared",
                "call each trigger before the next prepare",
            )  # fmt: skip
        trace.prepared = trace.line()
        emitting = _varied(kind, srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls)
        return PreparedCollective(kind, emitting)

    prepare.__name__ = prepare.__qualname__ = f"{kind}_prepare"
    return prepare


def _trigger(kind: str) -> Callable[..., None]:
    """Return the function ``KIND_trigger``, which emits the collective that ``KIND_prepare`` returned."""

    def trigger(prepare_instr: object, name: str | None = None) -> None:
        trace = current_trace()
        if not isinstance(prepare_instr, PreparedCollective) or prepare_instr.kind != kind or trace.prepared is None:
            refuse(
                "collective_order",
                f"'{kind}_trigger' did not get the result of '{kind}_prepare'",
                f"pass what '{kind}_prepare' returned, once",
            )
        trace.prepared = None
        prepare_instr.emitting()

    trigger.__name__ = trigger.__qualname__ = f"{kind}_trigger"
    return trigger


def collective_permute(
    srcs: object, dsts: object, source_target_pairs: Sequence[tuple[int, int]], priority: object = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Set the dst of each target rank to the src of its source rank. The dst of any other rank keeps its values."""
    flat = tuple(operator.index(rank) for pair in source_target_pairs for rank in pair)
    targets = flat[1::2]
    if not flat or len(set(targets)) != len(targets):
        refuse("replica_group", "'collective_permute' got a target rank twice, or no pairs: name each target rank once")
    check_priority(priority, "collective_permute")
    for source, target in _pairs(srcs, dsts, "collective_permute", in_hbm=True, alone=True):
        _emit("collective_permute", source, target, source.shape, ranks=flat, members=2)


def collective_permute_implicit(
    srcs_by_channel: Sequence[object], dsts_by_channel: Sequence[object], replica_group: object,
    channel_ids: Sequence[int] = (0,), priority: object = None, name: str | None = None,
) -> None:  # fmt: skip
    """Set each dst to the src of the previous rank of this rank's group. The ranks of a group form a ring."""
    check_priority(priority, "collective_permute_implicit")
    _check_channels(channel_ids, srcs_by_channel, "collective_permute_implicit")
    groups = _groups(replica_group, "collective_permute_implicit")
    for sources, targets in zip(srcs_by_channel, dsts_by_channel, strict=True):
        for source, target in _pairs(sources, targets, "collective_permute_implicit", alone=True):
            _emit("collective_permute_implicit", source, target, source.shape, **groups)


def collective_permute_implicit_reduce(
    srcs0_by_channel: Sequence[object], srcs1_by_channel: Sequence[object], dsts_by_channel: Sequence[object],
    replica_group: object, op: object, channel_ids: Sequence[int] = (0,), priority: object = None, name: str | None = None,
) -> None:  # fmt: skip
    """Set each dst to src0 op src1, where src1 comes from the previous rank of this rank's group."""
    call = "collective_permute_implicit_reduce"
    check_priority(priority, call)
    _check_channels(channel_ids, srcs0_by_channel, call)
    groups, word = _groups(replica_group, call), _fold(op, call)
    for first, second, targets in zip(srcs0_by_channel, srcs1_by_channel, dsts_by_channel, strict=True):
        ((left, target),), ((right, _),) = _pairs(first, targets, call), _pairs(second, targets, call)
        if (right.shape, target.shape, right.dtype_name) != (left.shape, left.shape, left.dtype_name):
            refuse(
                "shape",
                f"the tensors of '{call}' differ: src0 {list(left.shape)}, src1 {list(right.shape)}, dst {list(target.shape)}: give all the same shape, and src1 the type of src0",
            )
        current().emit("collective", Engine.DMA, [target], [left, right], attrs={"kind": call, "op": word, **groups})


def rank_id(name: str | None = None) -> Register:
    """Return a register that holds the number of the running rank."""
    return _ranked({"ranks": (), "members": 1}, 0)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: object, channel_id: int = 0, name: str | None = None
) -> Register:
    """Return a register that holds the rank whose data arrives here after ``iteration_id`` steps around the ring."""
    return _ranked(_groups(replica_group, "collective_permute_implicit"), operator.index(cast("Any", iteration_id)))


def _ranked(groups: dict[str, Attr], steps: int) -> Register:
    """Return a register that holds the number of the rank that comes ``steps`` positions before this rank in the ring
    of its group.
    """
    made = Register(current_trace().builder.register())
    current().emit("register_rank", Engine.SYNC, [], [steps], attrs={"register": made.number, **groups})
    return made


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute, collective_permute_implicit,
    collective_permute_implicit_reduce, rank_id, collective_permute_implicit_current_processing_rank_id,
    all_to_all_v, all_gather_v, *(make(kind) for kind in ("all_to_all_v", "all_gather_v") for make in (_prepare, _trigger)),
)  # fmt: skip


def _of_version(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that checks the arguments of a call, and that the trace's version of ``nki``
    has them.
    """
    guarded = checked("nki.collectives", function)
    late = options_of(function.__name__)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_options(f"nki.collectives.{function.__name__}", late, kwargs)
        return guarded(*args, **kwargs)

    return call


# The functions are wrapped once in each process, because reading their signatures takes longer than a small trace.
_FUNCTIONS: Mapping[str, object] = MappingProxyType(
    {function.__name__: _of_version(function) for function in FUNCTIONS}
)


def namespace() -> dict[str, object]:
    """Return the names of ``nki.collectives`` that the simulator has, with their values."""
    return {**_FUNCTIONS, "ReplicaGroup": ReplicaGroup, "rg_partition_op": rg_partition_op}
