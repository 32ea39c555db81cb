"""List the kernels with a published latency, in sets: some to develop the model, some only to validate it.

The kernels' texts come from checkouts and from folders of extracted kernels, which environment variables name.
This file has only names and figures. A set whose folder is missing is left out. A traced program is cached
under a digest of the kernel's text, its arguments and the front end's code. So kernels that are timed again
need not be traced again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from acceld.errors import AcceldError
from acceld.nki.frontend.tracing import Argument, TensorSpec, TraceOptions, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Program
from scripts.evidence.simbench import held_out, kernels, versions

PEAK_US = 218.5
"""Time of 2048 x 2048 x 2048 in bfloat16 at 78.64 TFLOP/s, which awslabs/nki-autotune calls 100 %."""
FRONT_END = kernels.ROOT / "acceld" / "nki"
DEVELOPMENT_OPERATORS = frozenset(
    "silu adamw rope_single_freq_apply rmsnorm_matmul matmul bmm_softmax gqa_full".split()
)
"""Operators of KDA's set that the model may be fitted on."""
ORDER_ONLY = {("gemm", "2_gemm_1.py")}
"""This kernel moves fewer bytes than the one before it and is slower, for an unknown reason. Its order counts, its
error does not.
"""


class Role(StrEnum):
    """Use of a set: to develop the model, or only to validate it."""

    DEVELOPMENT = "development"
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel with its published latency."""

    group: str
    """Name of the kernel's set."""
    chain: str
    """Chain of the kernel: kernels of one chain compute the same from the same arguments."""
    name: str
    role: Role
    milliseconds: float
    source: str = field(repr=False)
    arguments: Sequence[Argument] | Mapping[str, Argument]
    api: str = "nki_legacy"
    chip: str = "trn1"
    entry: str | None = None
    grid: tuple[int, ...] = ()
    lnc: int = 1
    """Physical cores of the launch."""
    path: str = "kernel.py"
    sdk: str = ""
    """SDK of the measurements, if it is not that of the default parameters."""
    source_root: Path | None = None
    order_only: bool = False

    def program(self, cache_folder: Path) -> Program:
        """Return the kernel's program, traced or from the cache. Raise KernelFailure if it can not be traced."""
        key = repr(
            (_front_end_digest(), self.source, self.arguments, self.api, self.chip, self.entry, self.grid, self.lnc)
        )
        stored = cache_folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.z"
        if stored.is_file():
            return decode(zlib.decompress(stored.read_bytes()))
        options = TraceOptions(deadline_s=600.0, source_root=self.source_root)
        program = trace(
            self.source, self.arguments, filename=self.path, entry=self.entry, grid=self.grid, api=self.api,
            chip=self.chip, lnc=self.lnc, options=options,
        )  # fmt: skip
        cache_folder.mkdir(parents=True, exist_ok=True)
        stored.write_bytes(zlib.compress(encode(program), 1))
        return program


@cache
def _front_end_digest() -> str:
    """Return a digest of the code that traces kernels. If it changes, all kernels are traced again."""
    digest = hashlib.sha256()
    for folder in ("frontend", "ir"):
        for path in sorted((FRONT_END / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def folder(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if the variable is not set."""
    named = os.environ.get(variable)
    return Path(named) if named and Path(named).is_dir() else None


def every_set() -> Iterator[Measured]:
    """Yield the kernels of all sets whose folders are present."""
    for source in SOURCES:
        yield from source()


def _nkibench() -> Iterator[Measured]:
    """Yield NKIBench's baselines and AccelOpt's two best kernels, on trn1."""
    checkout = folder("ACCELOPT_DIR")
    if checkout is None:
        return
    for name, figures in kernels.measured_figures().items():
        kernel = kernels.public(name, checkout)
        yield Measured(
            "NKIBench", kernels.BEST.get(name, name), name, Role.DEVELOPMENT, figures["latency_ms"], kernel.source,
            kernel.arguments, entry=kernel.workload.entry, grid=kernel.workload.grid, path=kernel.filename,
        )  # fmt: skip


def _tutorial() -> Iterator[Measured]:
    """Yield four bfloat16 matrix products in the forms of AWS's tutorial (SDK 2.20)."""
    for name, ms in versions.TUTORIAL_MS.items():
        path = kernels.ROOT / "tests" / "kernels" / "legacy" / f"matmul_bf16_{name}.py"
        arguments = [
            TensorSpec((versions.K, versions.M), "bfloat16"),
            TensorSpec((versions.K, versions.N), "bfloat16"),
        ]
        yield Measured("tutorial", "tutorial", name, Role.DEVELOPMENT, ms, path.read_text(), arguments, sdk="2.20")


def _samples() -> Iterator[Measured]:
    """Yield the forty latencies in AWS's Mamba tutorial and in the tests of nki-samples."""
    checkout = folder("NKI_SAMPLES_LEGACY_DIR")
    if checkout is None:
        return
    for one in held_out.PUBLISHED:
        path = checkout / one.file
        root = path.parent if one.file == held_out.MAMBA else checkout / "src"
        yield Measured(
            f"samples {one.group}", f"{one.file} {one.arguments}", one.label, Role.DEVELOPMENT, one.milliseconds,
            path.read_text(), list(one.arguments), entry=one.entry, grid=one.grid, path=str(path), source_root=root,
        )  # fmt: skip


AUTOCOMP = {
    "2_gemm": ("gemm", Role.DEVELOPMENT),
    "4_conv1d": ("conv1d", Role.DEVELOPMENT),
    "5_sd_attention": ("sd", Role.DEVELOPMENT),
    "4_attention": ("attention", Role.VALIDATION),
    "3_mamba": ("mamba", Role.VALIDATION),
}
"""Set and role of each problem of ucb-bar/autocomp."""


def _autocomp() -> Iterator[Measured]:
    """Yield Autocomp's kernels, on trn1."""
    root = folder("ACCELD_MEASURED")
    if root is None or not (root / "autocomp" / "pairs.json").is_file():
        return
    for pair in json.loads((root / "autocomp" / "pairs.json").read_text()):
        group, role = AUTOCOMP[pair["problem"]]
        path = root / "autocomp" / pair["kernel"]
        yield Measured(
            group, group, pair["kernel"], role, pair["measured_ms"], path.read_text(), [_spec(a) for a in pair["args"]],
            path=path.name, order_only=(group, pair["kernel"]) in ORDER_ONLY,
        )  # fmt: skip


def _kda() -> Iterator[Measured]:
    """Yield KDA's kernels of NKIBench's operators, on trn2."""
    root = folder("ACCELD_MEASURED")
    if root is None or not (root / "kda" / "pairs.json").is_file():
        return
    for pair in json.loads((root / "kda" / "pairs.json").read_text()):
        path = root / "kda" / pair["kernel"]
        role = Role.DEVELOPMENT if pair["op"] in DEVELOPMENT_OPERATORS else Role.VALIDATION
        arguments: dict[str, Argument] = {}
        flags = iter(pair["flags"])
        for flag, text in zip(flags, flags, strict=True):
            name, _, given = text.partition("=")
            arguments[name] = float(given) if flag == "--scalar" else _spec(given)
        yield Measured(
            "KDA", pair["op"], path.stem, role, pair["measured_ms"], path.read_text(), arguments, chip="trn2",
            entry=pair["entry"], path=path.name,
        )  # fmt: skip


SINGLE_BANK = 59.6
LADDER = (
    ("kernel_12", 16.0),
    ("kernel_13", 16.0),
    ("kernel_14", 16.0),
    ("kernel_15, one bank", SINGLE_BANK),
    ("kernel_15", 82.9),
)
"""Steps of awslabs/nki-autotune's optimization of a matrix product, and the percent of the peak that each reaches on
trn2.
"""


def _autotune() -> Iterator[Measured]:
    """Yield awslabs/nki-autotune's matrix products in the current API, on trn2."""
    checkout = folder("NKI_AUTOTUNE_DIR")
    if checkout is None:
        return
    arguments = [TensorSpec((2048, 2048), "bfloat16"), TensorSpec((2048, 2048), "bfloat16")]
    ladder = (checkout / "kernel_transforms.py").read_text().replace("from nkigym.synthesis import simulate_fp32\n", "")
    ladder = ladder.partition("def _main()")[0]
    one_bank = ladder.replace("(128, 2, 2048)", "(128, 1, 2048)").replace("i_d1_0 % 2", "0")
    library = checkout / "kernel_library"
    for name, rate in LADDER:
        text = one_bank if rate == SINGLE_BANK else ladder
        yield _ladder(name, Role.DEVELOPMENT, rate, text, arguments, name.partition(",")[0])
    hand = library / "matmul" / "lhsT_rhs" / "kernel_hand_90.92mfu.py"
    yield _ladder("hand kernel", Role.DEVELOPMENT, 90.92, hand.read_text(), arguments, "matmul_lhsT_rhs_nkigym")
    tuned = library / "matmul" / "lhs_rhs" / "kernel_handtuned_89.26mfu.py"
    yield _ladder("lhs_rhs", Role.VALIDATION, 89.26, tuned.read_text(), arguments, None)
    norm = library / "rmsnorm_matmul" / "kernel_hand_online.py"
    yield _ladder("rmsnorm + matmul", Role.VALIDATION, 79.5, norm.read_text(), arguments, None)


def _ladder(
    name: str, role: Role, rate: float, text: str, arguments: Sequence[Argument], entry: str | None
) -> Measured:
    group = "ladder" if role is Role.DEVELOPMENT else "nki-autotune"
    return Measured(
        group, group, name, role, PEAK_US / rate * 100 / 1000, text, arguments, "nki", "trn2", entry, path="kernel.py"
    )


TRN2_CHECKOUTS = {
    "allenkchau/trainium-kernel-fusion": "TRAINIUM_KERNEL_FUSION_DIR",
    "KevGomes1403/nki-moe-megakernel": "NKI_MOE_MEGAKERNEL_DIR",
}
"""Environment variable of each repository that ``trn2.json`` names."""
TRN2_SETS = {"attn_tkg": "decode attention", "moe_fused": "two-core MoE"}
"""Names of the sets that are not called attention."""


def _trn2() -> Iterator[Measured]:
    """Yield the kernels that ``trn2.json`` lists with repository, path, arguments and latency, on trn2."""
    root = folder("ACCELD_MEASURED")
    if root is None or not (root / "trn2.json").is_file():
        return
    library = folder("NKI_LIBRARY_DIR")
    for row in json.loads((root / "trn2.json").read_text()):
        checkout = folder(TRN2_CHECKOUTS[row["repository"]])
        if checkout is None:
            continue
        given: dict[str, list[str]] = defaultdict(list)
        flags = iter(row["flags"])
        for flag, value in zip(flags, flags, strict=True):
            given[flag].append(value)
        path, lnc = checkout / row["path"], int(given["--lnc"][0]) if given["--lnc"] else 1
        yield Measured(
            TRN2_SETS.get(row["set"], "attention"), row["set"], row["id"], Role.DEVELOPMENT, row["measured_us"] / 1000,
            path.read_text(), [_spec(text) for text in given["--arg"]], row["api"], row["chip"], given["--entry"][0],
            tuple(map(int, given["--grid"])), lnc, path=str(path),
            source_root=checkout if library is None else library / "src" / "nkilib_src",
        )  # fmt: skip


def _spec(text: str) -> TensorSpec:
    shape, _, dtype = text.partition(":")
    return TensorSpec(tuple(map(int, shape.split("x"))), dtype)


SOURCES: tuple[Callable[[], Iterator[Measured]], ...] = (
    _nkibench,
    _tutorial,
    _samples,
    _autocomp,
    _kda,
    _autotune,
    _trn2,
)


def programs(found: Sequence[Measured], cache_folder: Path) -> Iterator[tuple[Measured, Program | AcceldError]]:
    """Yield each kernel with its traced program, or with the reason why it can not be traced."""
    for one in found:
        try:
            yield one, one.program(cache_folder)
        except AcceldError as error:
            yield one, error
