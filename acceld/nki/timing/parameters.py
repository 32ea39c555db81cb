"""Define every parameter of the performance model, in one frozen record for each compiler model.

The docstring of a documented constant names its source. :data:`FITTED` lists the fitted constants and the data
to which each was fitted. No parameter belongs to one kernel. Constants of the chips are in :mod:`acceld.chips`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from acceld.chips import CHIPS
from acceld.errors import UsageError

PARAMS_VERSION = 12


@dataclass(frozen=True, slots=True)
class TimelineParams:
    """The parameters of the performance model for one compiler.

    Overheads are in cycles of the engine that has them.
    """

    model: str
    """``compiler_legacy`` (neuronxcc.nki) or ``compiler_current`` (nki)."""
    sdk: str = "2.26"
    """The SDK of the modelled compiler: the latest SDK among the measurements that the constants were fitted on."""

    # documented
    min_interval_cycles: int = 64
    """Least initiation interval of any engine in cycles (nki.isa of SDK 2.26, MIN_II)."""
    gpsimd_start_cycles: int = 150
    """Cycles that each GpSimd instruction takes to start (nki.isa of SDK 2.26)."""
    float32_passes: int = 4
    """Passes through the array for a float32 matrix product (nki.isa of SDK 2.26: four times the cost)."""
    transpose_passes: int = 4
    """Passes through the array for a float32 transpose. trn1: as many as for a product (FLOPs and busy times of the 14
    measured baselines). trn2: 3, because KDA's counters show 0.16 to 0.18 us for 128x128.
    """
    dma_latency_us: float = 1.3
    """Time from the trigger of a transfer to its first byte (DMA bandwidth guide)."""
    engine_partitions: int = 8
    """Number of SBUF partitions that each DMA engine serves, and of descriptors that it takes at a time (DMA overview,
    v2 architecture guide). A transfer of fewer than 128 rows therefore leaves engines idle.
    """
    sbuf_kept_bytes: int = 16 * 1024
    """Bytes of each SBUF partition that the compiler keeps for itself; buffers rotate through the rest (direct
    allocation guide).
    """
    shared_sbuf_port: bool = False
    """True if the vector engine and GpSimd can not access SBUF at the same time (NeuronCore-v2 architecture guide)."""
    double_rate_cycles: int = 0
    """Cycles of a vector instruction at its double rate in addition to its columns; 0 if there is no double rate for
    float32. trn2: 396 ns between the starts of 44 tensor_scalars of 512 float32 columns from SBUF (ten profiles of
    allenkchau/trainium-kernel-fusion). In the same profiles a tensor_scalar of 512 columns at the double rate (481 ns)
    and a tensor_scalar of 128 columns at the single rate (348 ns) both take 214 ns in addition to their columns. The
    fixed time is therefore the same for narrow instructions.
    """
    round_trip_us: float = 0.0
    """Time that a store, and a load of the stored bytes, take in addition to the transfers themselves. trn2: 1.9 us for
    the end of each and 0.57 us for the issue of each (the same profiles as for double_rate_cycles), less the latency
    that every transfer has.
    """
    issue_us: float = 0.0
    """Least time between the starts of two transfers whose descriptors are made at run time; 0 if descriptors are
    static. No latency includes this time: the figure only shows when a latency can not be right. Current API: small
    ``dma_copy`` of public kernels on trn2 take 0.49 to 0.61 us each, one after the other, and a transfer occupies its
    issuer for 0.54 to 0.61 us in the same profiles.
    """
    dynamic_trips: int | None = None
    """Number of iterations to assume for loops whose number of iterations is known only at run time. With None, a
    program with such a loop has no latency.
    """

    # fitted, see FITTED
    tensor_overhead_cycles: int = 64
    scalar_overhead_cycles: int = 90
    vector_overhead_cycles: int = 130
    reciprocal_factor: float = 2.2
    semaphore_us: float = 0.1
    window: int = 64
    sbuf_reserved_bytes: int = 24 * 1024
    narrow_transfer_factor: float = 1.0
    latency_scale: float = 1.03
    kernel_start_us: float = 8.0
    """Time before the first useful instruction. A profile of a tutorial kernel shows 17 us; ``nki.benchmark`` counts
    only half of this time.
    """
    kernel_end_us: float = 3.0
    """Time after the last useful instruction. The profile of the same tutorial kernel shows 5 us."""
    two_cores_us: float = 0.0
    """Additional time of a launch on two cores, compared with a launch on one core."""
    short_row_us: float = 0.0
    """Least time in microseconds that a DMA engine takes for a row whose descriptor is made at run time."""
    gather_us: float = 0.0
    """Time that GpSimd takes for a transfer whose addresses are read from memory; 0 if this is not modelled."""
    gather_packet_us: float = 0.0
    """Time that GpSimd takes for each packet of a transfer whose addresses are read from memory."""
    merged_iterations: int = 4
    """Number of iterations of a long affine loop that one machine instruction covers
    (:func:`compiler_legacy.merged_iterations`); 0 if iterations are not merged.
    """
    half_use: float = 0.55
    """Average use of the tensor engine below which it runs at half its rate, on chips that throttle it."""
    most_use: float = 1.0
    """Greatest share of its cycles in which the tensor engine can take a column; 1 if nothing limits the share. trn1
    with the current compiler: 0.875. Profiles of foxl-ai/kiln name this limit, and 768 chained products take 2.45
    columns a nanosecond at every width.
    """
    pair_cycles: int = 0
    """Cycles of a vector instruction that reads two tiles of SBUF, in addition to two cycles for each column."""
    row_packets: bool = False
    """True if each row of a transfer whose addresses are read from memory is a packet of its own, because software makes
    the descriptors. trn1: foxl-ai/kiln counts 128 packets for each of 256 transfers of 128 rows of 6528 B.
    """
    compared: bool = True
    """True if latencies of whole kernels on the chip were compared with predictions, so that the error of a prediction
    is known as an interval.
    """

    # changed by a calibration; factors of 1 and times of 0 are the published model
    overhead_factor: float = 1.0
    """Factor on the fixed time of each instruction. The documented least interval is not scaled."""
    transfer_factor: float = 1.0
    """Factor on the time of each DMA transfer."""
    each_transfer_us: float = 0.0
    """Microseconds for which each transfer occupies its DMA engines, in addition to the time of its rows."""
    calibrated_on: int = 0
    """Number of this machine's kernels to which the calibration was fitted; 0 for the published model."""

    # choices of structure
    value_numbering: bool = True
    """True if the compiler merges executions of the same operation on the same values."""
    fuse_loops: bool = True
    """True if the compiler fuses two sibling loops where the later loop uses values of the earlier loop."""
    divide_loops: bool = False
    """True if the compiler divides an affine loop at its narrow instructions (legacy, later chips).

    Source: the numbers of reductions and reciprocals in ten profiles of allenkchau/trainium-kernel-fusion on trn2. On trn1
    it is not modelled: there the loops of Autocomp's convolutions would come out of order.
    """
    turns_on_tensor_engine: bool = True
    """True if a transposing load or store moves rows unchanged and the tensor engine transposes the tile (legacy)."""
    eliminate_dead: bool = True
    """True if the compiler drops instructions whose results never reach a store."""
    spills: bool = True
    """True if the model limits the values in SBUF to its capacity; values that do not fit are spilled."""
    alternates_copies: bool = True
    """True if copies and clears that name no engine always alternate between two engines.

    If False, they alternate only while the usual engine has more work than any other engine. Source: in the kernel bmm
    on trn1 the vector engine copies nothing while DMA is the bottleneck.
    """
    merges_beside: bool = False
    """True if one machine instruction covers several iterations of an innermost affine loop whose tiles lie side by
    side (legacy, later chips).

    Source: with this the numbers of instructions of KDA's gqa_full and bmm_softmax agree exactly with their counters.
    """
    sums_apart: bool = False
    """True if the compiler splits an activation that also reduces into two instructions with operands of their own
    (legacy, later chips). Source: the counters of two kernels.
    """
    small_operand_elements: int = 8
    """Greatest number of elements of a tensor_scalar that names no engine for which the vector engine runs it (legacy).
    With more elements the scalar engine runs it.
    """

    @property
    def label(self) -> str:
        """Return the name of the compiler model. For a calibrated model the number of measured kernels is added."""
        return f"{self.model}, calibrated on {self.calibrated_on} kernels" if self.calibrated_on else self.model

    def to_json(self) -> dict[str, Any]:
        """Return all parameters by name, as data for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    def with_scaled(self, name: str, factor: float) -> TimelineParams:
        """Return a copy in which the parameter ``name`` is multiplied by ``factor``, to examine how a prediction
        depends on the parameter.
        """
        value = getattr(self, name) * factor
        return replace(self, **{name: round(value) if isinstance(getattr(self, name), int) else value})


FITTED: dict[str, str] = {
    "tensor_overhead_cycles": "Cycles that a pass of the tensor engine takes beyond one for each column. From the 14 on trn1 (64), "
    "and from float32 products of KDA's kernels on trn2 (8)",
    "scalar_overhead_cycles": "Cycles of a long instruction of the scalar engine that do not overlap with the next instruction. "
    "From the scalar engine's busy time in the 14 (90). On trn2 KDA's counters show that this time adds "
    "to the latency only (0). With the current compiler on trn1 from six rates of foxl-ai/kiln (24)",
    "vector_overhead_cycles": "Cycles of a long instruction of the vector engine that do not overlap with the next instruction. "
    "From busy times of the 14 (130) and of KDA's adamw in 13 widths (108). Instructions of three "
    "elements start every 64 cycles, the documented interval. With the current compiler on trn1 from ten rates of "
    "foxl-ai/kiln (30)",
    "reciprocal_factor": "How many times longer a reciprocal takes than another vector instruction. From the vector engine's "
    "busy time in the 14, which refutes the documented 8N",
    "semaphore_us": "Time from the end of an instruction until another engine starts the instruction that waited for it. "
    "From latencies of the 14 on trn1 (0.1), and from ten profiles of allenkchau/trainium-kernel-fusion "
    "on trn2 (0.04): of 320 such waits, half are at most 37 ns and nine of ten at most 57 ns",
    "window": "Number of instructions of one engine within which the compiler reorders. From Autocomp's attention "
    "of three 4096x64 arrays on trn1 (256, which improves the 14 too), from KDA's gqa_full on trn2 (64), "
    "and from decode attention in the current API (32)",
    "sbuf_reserved_bytes": "Bytes of each SBUF partition that the compiler does not fill with values. From spills of the 14 (24 "
    "KiB) and of KDA's silu (16 KiB)",
    "narrow_transfer_factor": "How many times lower the transfer rate is for long rows of 16-bit elements. From AWS's four bfloat16"
    " products, which are slower with SDK 2.20 on trn1 only; it is 1 for later SDKs",
    "latency_scale": "Factor on every latency, because schedules are not perfect. From latencies of the 14",
    "dma_latency_us": "Time from the start of a transfer to its first byte. Documented for trn1 (1.3). On trn2 from three "
    "kernels of awslabs/nki-autotune's ladder whose loads wait for single buffers: of the 0.7 to 0.95 us "
    "in AWS's trace, all but 0.2 overlap with the wait",
    "kernel_start_us": "Time from a kernel's start to its first useful instruction. From nki-samples' shortest kernels on trn1 (8)."
    " On trn2 (14) from attention of allenkchau/trainium-kernel-fusion, decode attention of "
    "KevGomes1403/nki-moe-megakernel and awslabs/nki-autotune's ladder. Profiles of that attention show "
    "13.4 us before the first transfer, and 3.9 us more until its bytes are used",
    "kernel_end_us": "Time from a kernel's last useful instruction to its end. From the kernels that give kernel_start_us (3 on "
    "trn1, 2 on trn2)",
    "two_cores_us": "Time that a launch on two cores takes beyond that of a launch on one. From decode attention of "
    "KevGomes1403/nki-moe-megakernel: v14_planE on two cores takes 9 us more than v13_BC on one core. "
    "v13_BC has the same instructions, and ten small ones more",
    "short_row_us": "Least time of a DMA engine for a row whose descriptor is made at run time. From decode attention of "
    "KevGomes1403/nki-moe-megakernel on trn2: 2,097,152 pieces of two bytes take 1697 us of 16 engines",
    "gather_us": "Time of GpSimd for a transfer whose addresses are read from memory. From 77 kernels of "
    "KevGomes1403/nki-moe-megakernel with such transfers on trn2, together with gather_packet_us",
    "gather_packet_us": "Time of GpSimd for each packet of a transfer whose addresses are read from memory. From the kernels "
    "that give gather_us. On trn1 a packet is a row, and nothing else is added: from a gather of 128 rows of 2 KiB in "
    "1.419 us of foxl-ai/kiln (0.0108)",
    "merged_iterations": "Iterations of a long affine loop that one machine instruction covers. From two convolutions of "
    "Autocomp on trn1, of 5.602 and 4.955 ms. On trn2 an instruction covers as many as fill a bank of "
    "PSUM (0)",
    "pair_cycles": "Cycles that a vector instruction of two tiles of SBUF takes beyond two for each column. From three rates of "
    "foxl-ai/kiln on trn1 with the current compiler (100)",
    "half_use": "Average use of the tensor engine below which it runs at half its rate. From KDA's products on trn2, "
    "whose K of 64 fills half the array. The document says a half (neuron-explorer, 'Understanding "
    "throttling')",
}
"""Meaning of each fitted constant, and the measurements to which the constant was fitted. "The 14" are NKIBench's
baselines on trn1.
"""

LEGACY = TimelineParams(
    model="compiler_legacy",
    window=256,
    shared_sbuf_port=True,
    alternates_copies=False,
)
CURRENT = TimelineParams(
    model="compiler_current",
    tensor_overhead_cycles=8,
    scalar_overhead_cycles=0,
    double_rate_cycles=124,
    vector_overhead_cycles=108,
    dma_latency_us=0.2,
    kernel_start_us=14.0,
    semaphore_us=0.04,
    window=32,
    round_trip_us=4.5,
    short_row_us=0.013,
    gather_us=1.1,
    gather_packet_us=0.0115,
    issue_us=0.49,
    kernel_end_us=2.0,
    two_cores_us=9.0,
    merged_iterations=0,
    transpose_passes=3,
    value_numbering=False,
    fuse_loops=False,
    eliminate_dead=False,
    turns_on_tensor_engine=False,
    small_operand_elements=0,
)
"""Parameters of the compiler of the current API, which runs instructions as written. Constants are those of trn2 under
the legacy API, except that float32 passes of 512 columns take 430 ns on trn2 (documented figure).
"""

CURRENT_TRN1 = replace(
    CURRENT,
    sdk="2.32",
    tensor_overhead_cycles=0,
    most_use=0.875,
    scalar_overhead_cycles=24,
    vector_overhead_cycles=30,
    pair_cycles=100,
    double_rate_cycles=0,
    transpose_passes=LEGACY.transpose_passes,
    shared_sbuf_port=True,
    dma_latency_us=LEGACY.dma_latency_us,
    semaphore_us=LEGACY.semaphore_us,
    kernel_start_us=LEGACY.kernel_start_us,
    kernel_end_us=LEGACY.kernel_end_us,
    round_trip_us=LEGACY.round_trip_us,
    short_row_us=LEGACY.short_row_us,
    gather_us=0.0,
    gather_packet_us=0.0108,
    row_packets=True,
    two_cores_us=0.0,
    compared=False,
)
"""Parameters of the compiler of the current API on trn1. Instructions run as written. What depends on the chip is as under
the legacy API, except the times of instructions and of gathers: foxl-ai/kiln measured these with SDK 2.32.
"""

LEGACY_2_20 = replace(LEGACY, sdk="2.20", narrow_transfer_factor=2.5)
"""Parameters of the compiler of AWS's tutorials, whose bfloat16 matrix products are 1.8 to 2.5 times slower than those
of later compilers.
"""

LEGACY_LATER = replace(
    LEGACY,
    tensor_overhead_cycles=8,
    window=64,
    scalar_overhead_cycles=0,
    double_rate_cycles=124,
    vector_overhead_cycles=108,
    dma_latency_us=0.2,
    sbuf_reserved_bytes=16 * 1024,
    semaphore_us=0.04,
    kernel_start_us=14.0,
    round_trip_us=4.5,
    kernel_end_us=2.0,
    two_cores_us=9.0,
    shared_sbuf_port=False,
    alternates_copies=True,
    merges_beside=True,
    divide_loops=True,
    sums_apart=True,
    merged_iterations=0,
    transpose_passes=3,
)
"""Parameters of the legacy compiler on chips after trn1."""

BY_API = {"nki_legacy": LEGACY, "nki": CURRENT}


def default_params(api: str, chip: str) -> TimelineParams:
    """Return the parameters for an API and chip. Raise UsageError if the API or the chip is unknown."""
    if chip not in CHIPS:
        raise UsageError(f"no chip is called {chip!r}", hint=f"known chips: {', '.join(CHIPS)}")
    params = BY_API.get(api)
    if params is None:
        raise UsageError(f"no compiler model for API {api!r}", hint=f"known: {', '.join(BY_API)}")
    first = CHIPS[chip].generation == 2
    return (LEGACY if first else LEGACY_LATER) if params is LEGACY else CURRENT_TRN1 if first else CURRENT
