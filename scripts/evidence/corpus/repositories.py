"""Yield trials of the kernels of each public repository except nki-library."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.errors import UsageError
from acceld.nki.errors import KernelFailure, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.verify.verifier import verify
from acceld.workloads import make_inputs, reference_outputs
from acceld.workloads.discovery import workload
from scripts.evidence.corpus.host import Host, Stopped
from scripts.evidence.corpus.outcomes import State, Trial
from scripts.evidence.simbench import measured_sets, samples
from scripts.evidence.simbench.samples.trials import distance

Array = NDArray[Any]
TOLERANCE = 2e-5
NARROW_TOLERANCE = 2e-2
HARNESSED = ("trn-advanced-nki1", "trn-advanced-nki2", "trn-tutorial-nki1", "trn-tutorial-nki2", "trn-internal")
"""Folders of ucb-bar/autocomp whose solutions have test harnesses that call single kernels."""
MARK = "# SUBSTITUTE HERE"
OTHERS_STATE = {
    "right": State.EQUAL,
    "differs": State.DIFFERS,
    "does not trace": State.UNTRACED,
    "refused": State.ILLEGAL,
    "does not run": State.FAILED,
}


def folder(variable: str) -> Path | None:
    """Return the folder of the checkout that an environment variable names; None if the variable is not set."""
    named = os.environ.get(variable)
    return Path(named).resolve() if named and Path(named).is_dir() else None


def load(path: Path, name: str) -> ModuleType:
    """Import the file ``path`` as a module called ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compared(host: Host, right: bool) -> tuple[State, str]:
    """Return (last stage that the kernels of a test reached, reason).

    ``right`` tells whether the kernels' results were right.
    """
    if host.stopped is not None:
        return host.stopped.state, host.stopped.reason
    if not host.ran:
        return State.UNTRIED, "its test calls no kernel"
    return (State.EQUAL if right else State.DIFFERS), ""


def nki_samples(scratch: Path) -> Iterator[Trial]:
    """Yield trials of kernels of aws-neuron/nki-samples, with acceld's own references."""
    for variable, (name, cases) in samples.CHECKOUTS.items():
        root = folder(variable)
        for case in cases if root else ():

            def run(root: Path | None = root, case: samples.Case = case) -> tuple[State, str]:
                found = samples.results(root or Path(), [case])
                if not found:
                    return State.UNTRIED, "its file is not there"
                error = "" if found[0].error is None else f"{found[0].error:.2g}"
                return OTHERS_STATE[found[0].state], found[0].detail or error

            yield Trial(f"nki-samples, {name}", f"{case.file}:{case.entry}", run)


def measured(scratch: Path) -> Iterator[Trial]:
    """Yield trials of kernels with a published latency, with the references of acceld's workloads or a numpy
    product.
    """
    names = {"NKIBench": "AccelOpt", "KDA": "kda-for-trainium", "ladder": "nki-autotune"}
    names |= dict.fromkeys(("gemm", "conv1d", "sd", "attention", "mamba"), "autocomp, traces")
    for one in measured_sets.every_set():
        repository = names.get(one.group, one.group)
        if repository in ("AccelOpt", "kda-for-trainium", "nki-autotune", "autocomp, traces"):
            yield Trial(repository, f"{one.chain}/{one.name}", partial(_measured, one), 300.0)


def _measured(one: measured_sets.Measured) -> tuple[State, str]:
    from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace

    try:
        program = trace(
            one.source, one.arguments, filename=one.path, entry=one.entry, grid=one.grid, api=one.api, chip=one.chip,
            options=TraceOptions(deadline_s=120.0, source_root=one.source_root),
        )  # fmt: skip
    except UnsupportedCall as failure:
        return State.REFUSED, failure.message
    except KernelFailure as failure:
        return State.UNTRACED, f"line {failure.line}: {failure.message} [{failure.rule}]"
    for finding in verify(program):
        return State.ILLEGAL, f"line {finding.line}: {finding.message} [{finding.rule}]"
    given = list(one.arguments.values() if isinstance(one.arguments, Mapping) else one.arguments)
    specs = [a for a in given if isinstance(a, TensorSpec)]
    inputs, expected = _expected(one, specs)
    try:
        outputs = execute(program, inputs)
    except KernelFailure as failure:
        return State.FAILED, f"line {failure.line}: {failure.message} [{failure.rule}]"
    if expected is None:
        return State.RUNS, ""
    error = max(distance(out, want) for out, want in zip(outputs, expected, strict=False))
    narrow = any(spec.dtype != "float32" for spec in specs) or "bf16" in one.name or "bfloat16" in one.source
    return (State.EQUAL if error <= (NARROW_TOLERANCE if narrow else TOLERANCE) else State.DIFFERS), f"{error:.2g}"


def _expected(one: measured_sets.Measured, specs: list[Any]) -> tuple[list[Array], list[Array] | None]:
    """Return inputs, and the outputs that a right kernel gives for them; None if they are not known."""
    if one.group in ("NKIBench", "KDA"):
        spec = workload(one.chain)
        drawn = make_inputs(spec, 7)
        tensors = [value for value in drawn if isinstance(value, np.ndarray)]
        inputs = [np.reshape(value, shape.shape) for value, shape in zip(tensors, specs, strict=True)]
        return inputs, [np.asarray(out) for out in reference_outputs(spec, drawn, float64=False)]
    rng = np.random.default_rng(7)
    import ml_dtypes

    def draw(spec: Any) -> Array:
        values: Array = rng.standard_normal(spec.shape, np.float32)
        return values.astype(ml_dtypes.bfloat16) if spec.dtype == "bfloat16" else values

    inputs = [draw(spec) for spec in specs]
    wide = [np.asarray(value, np.float32) for value in inputs]
    if one.group in ("gemm", "ladder") or one.name == "hand kernel":
        return inputs, [wide[0].T @ wide[1]]
    if one.name == "lhs_rhs":
        return inputs, [wide[0] @ wide[1]]
    if one.name == "rmsnorm + matmul":
        scale = 1 / np.sqrt(np.mean(wide[0] ** 2, axis=1, keepdims=True))
        return inputs, [(wide[0] * scale) @ wide[1]]
    return inputs, None


def autocomp(scratch: Path) -> Iterator[Trial]:
    """Yield trials of ucb-bar/autocomp's solutions in their own test harnesses, which compare them with another
    kernel.
    """
    root = folder("AUTOCOMP_DIR")
    if root is None:
        return
    for group in HARNESSED:
        for solution in sorted((root / "sols" / group).glob("*_ref.py")):
            number = solution.name.partition("_")[0]
            harness = next(iter(sorted((root / "harnesses" / group).glob(f"{number}_*.py"))), None)
            if harness is not None:
                yield Trial(
                    "autocomp", f"{group}/{solution.stem}", partial(_harnessed, harness, solution, scratch), 300.0
                )


def _harnessed(harness: Path, solution: Path, scratch: Path) -> tuple[State, str]:
    file = scratch / f"autocomp_{harness.parent.name.replace('-', '_')}_{harness.stem}.py"
    file.write_text(harness.read_text().replace(MARK, solution.read_text(), 1))
    trn2 = harness.parent.name == "trn-internal" or "gen3" in file.read_text()
    host = Host(
        scratch, {"nki": "trn2", "nki_legacy": "trn2" if trn2 else "trn1"}, 200.0, ("torch_xla", "torch_neuronx")
    )
    host.install()
    module = load(file, file.stem)
    right = False
    reference = re.findall(r"= test_nki\((\w+), solution\)", harness.read_text())
    try:
        right = bool(module.test_nki(getattr(module, reference[-1]), module.solution))
    except Stopped:
        pass
    return compared(host, right)


def convolutions(scratch: Path) -> Iterator[Trial]:
    """Yield trials of the finished convolutions of CS149's students on small images, with and without pooling."""
    root = folder("CS149_DIR")
    for file in sorted(root.glob("*/part2/conv2d*.py")) if root else ():
        text = file.read_text()
        if "numpy" not in file.stem and ("nc_matmul" in text.partition("def ")[2] or "nl.matmul" in text):
            yield Trial("CS149 convolutions", f"{file.parents[1].name}/{file.name}", partial(_convolution, file), 300.0)


def _convolution(file: Path) -> tuple[State, str]:
    chip = "trn2" if file.parents[1].name.endswith("2") else "trn1"
    host = Host(file.parent, {"nki_legacy": chip}, 200.0)
    host.install()
    sys.path.insert(0, str(file.parent))
    kernel = load(file, f"{file.stem}_of_a_student").fused_conv2d_maxpool
    rng = np.random.default_rng(7)
    pooled = [1, 2]
    errors: list[float] = []
    for channels in ((128, 128), (128, 256), (256, 128), (256, 256)):
        for pool in pooled:
            x = rng.random((4, channels[0], 32, 16), np.float32)
            w = rng.random((channels[1], channels[0], 3, 3), np.float32)
            bias = rng.random(channels[1], np.float32)
            try:
                found = host.run(kernel, (x, w, bias), {"pool_size": pool})[0]
            except Stopped as stopped:
                if pool == 2 and errors and max(errors) <= TOLERANCE:  # pooling earned extra credit and is optional
                    return State.EQUAL, f"without pooling; with: {stopped.reason}"
                raise
            errors.append(distance(found, convolution(x, w, bias, pool)))
            if errors[-1] > TOLERANCE and distance(found, convolution(x, w, 0 * bias, pool)) <= TOLERANCE:
                return State.UNTRIED, "unfinished: it adds no bias"
            if pool == 2 and errors[-1] > TOLERANCE >= errors[-2]:
                return State.EQUAL, f"without pooling; with pooling {errors[-1]:.2g} off"
    return (State.EQUAL if max(errors) <= TOLERANCE else State.DIFFERS), f"{max(errors):.2g}"


def convolution(x: Array, w: Array, bias: Array, pool: int) -> Array:
    """Return a convolution without padding, with bias, followed by the maxima of ``pool`` by ``pool`` windows."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    out = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True) + bias[:, None, None]
    n, c, height, width = out.shape
    cut = out[:, :, : height // pool * pool, : width // pool * pool]
    return np.asarray(cut.reshape(n, c, height // pool, pool, width // pool, pool).max((3, 5)))


@dataclass(frozen=True, slots=True)
class Single:
    """One kernel with its arguments and acceld's own reference."""

    file: str
    entry: str
    make: Callable[[np.random.Generator], tuple[list[Any], list[Array]]]
    chip: str = "trn2"


def _added(rng: np.random.Generator) -> tuple[list[Any], list[Array]]:
    a, b = (rng.standard_normal((128, 512), np.float32) for _ in range(2))
    return [a, b], [a + b]


def _normed(rng: np.random.Generator) -> tuple[list[Any], list[Array]]:
    x, w = rng.standard_normal((256, 1024), np.float32), rng.standard_normal(1024, np.float32)
    return [x, w, 1e-6], [x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6) * w]


MOE = (
    Single("nki_tensor_add_example.py", "nki_tensor_add_kernel", _added),
    Single("nki_custom_rmsnorm.py", "nki_rmsnorm_kernel", _normed),
)


def singles(scratch: Path) -> Iterator[Trial]:
    """Yield trials of kernels of aws-neuron/nki-moe."""
    root = folder("NKI_MOE_DIR")
    for one in MOE if root else ():

        def run(one: Single = one, root: Path | None = root) -> tuple[State, str]:
            root = root or Path()
            host = Host(root, {"nki": one.chip}, stubs=("torch_xla", "torch_neuronx"))
            host.install()
            kernel = getattr(load(root / one.file, Path(one.file).stem), one.entry)
            arguments, expected = one.make(np.random.default_rng(7))
            found = host.run(kernel, arguments, {})
            error = max(distance(a, b) for a, b in zip(found, expected, strict=True))
            return (State.EQUAL if error <= TOLERANCE else State.DIFFERS), f"{error:.2g}"

        yield Trial("nki-moe", one.entry, run)


def guarded(trial: Trial) -> Trial:
    """Return the trial ``trial`` changed so that any error counts as the reason why the kernel stopped."""

    def run() -> tuple[State, str]:
        random.seed(7)
        np.random.seed(7)  # other projects' tests draw from numpy's global generator
        try:
            return trial.run()
        except Stopped as stopped:
            return stopped.state, stopped.reason
        except UsageError as error:
            return State.UNTRIED, str(error)

    return Trial(trial.repository, trial.kernel, run, trial.limit_s)
