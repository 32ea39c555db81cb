"""Run a kernel's host code once, without data, and record its launches. This happens in a jail."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceld.devices.cuda.blank_torch import BlankTorch, Tensor, tensor_of
from acceld.devices.cuda.plan import SCALARS, Buffer, Code, Launch, LaunchPlan, Pointer, Scalar, encode
from acceld.evaluate.hosted.driver import BuildRefused, Built, Job
from acceld.parsing import parse

ENTRIES = ("run", "kernel", "optimized_kernel", "forward")
"""Names of the host function that launches the kernel, tried in this order if the workload does not name it."""


def build(job: Job) -> Built:
    """Return the launch plan of a job's kernel.

    Raise BuildRefused if Triton, or the stand-in for torch, refuses the kernel.
    """
    settings, scratch = job["settings"], Path(job["scratch"])
    os.environ.update(
        TRITON_CACHE_DIR=str(scratch / "cache"), HOME=str(scratch), TRITON_INTERPRET="0", TRITON_DEFAULT_FP_FUSION="1"
    )
    torch = BlankTorch(settings["multiprocessors"], settings["capability"])
    sys.modules["torch"], sys.modules["torch.cuda"] = torch, torch.cuda
    recorder = _Recorder(settings)
    import triton
    from triton.runtime.driver import driver

    driver.set_active(recorder)
    path = scratch / "kernel_source.py"
    path.write_text(job["text"], encoding="utf-8")
    try:
        returned = _entry(path, job)(*_arguments(job))
    except BuildRefused as refusal:
        raise _located(refusal, refusal, path) from refusal
    except Exception as error:
        # any class, because Triton raises many classes of errors for a kernel that it can not compile
        raise _located(BuildRefused(_message(error), rule=type(error).__name__), error, path) from error
    plan = _plan(torch, recorder, returned, job)
    used = max((one.shared_bytes for one in plan.kernels), default=0)
    counters = {
        "launches": float(len(plan.launches)),
        "programs": float(sum(one.grid[0] * one.grid[1] * one.grid[2] for one in plan.launches)),
        "shared_bytes": float(used),
        "scratch_bytes": float(plan.scratch_bytes),
        "warps": float(max((one.warps for one in plan.kernels), default=0)),
    }
    return Built(encode(plan), f"Triton {triton.__version__}, sm_{plan.capability}", counters)


def _arguments(job: Job) -> list[Any]:
    made: list[Any] = []
    number = 0
    for one in job["arguments"]:
        if "value" in one:
            made.append(one["value"])
            continue
        made.append(tensor_of(number, one["shape"], one["dtype"]))
        number += 1
    return made


def _entry(path: Path, job: Job) -> Any:
    spec = importlib.util.spec_from_file_location("kernel_source", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_source"] = module
    spec.loader.exec_module(module)
    for name in (job["entry"], *ENTRIES):
        if name and callable(getattr(module, name, None)):
            return getattr(module, name)
    functions = [node.name for node in parse(job["text"]).body if isinstance(node, ast.FunctionDef)]
    wanted = job["entry"] or " or ".join(ENTRIES)
    raise BuildRefused(f"there is no function {wanted}", rule="entry", hint=f"The file has {', '.join(functions)}.")


def _plan(torch: BlankTorch, recorder: _Recorder, returned: Any, job: Job) -> LaunchPlan:
    tensors = list(returned) if isinstance(returned, tuple | list) else [returned]
    wanted = job["outputs"]
    if len(tensors) != len(wanted):
        names = ", ".join(str(one["name"]) for one in wanted)
        raise BuildRefused(
            f"the kernel returns {len(tensors)} values instead of {len(wanted)}",
            rule="outputs",
            hint=f"Return {names}.",
        )
    outputs = []
    for got, want in zip(tensors, wanted, strict=True):
        if not isinstance(got, Tensor):
            raise BuildRefused(
                f"output {want['name']} is a {type(got).__name__}, not a tensor",
                rule="outputs",
                hint="Return tensors that the kernel made, one for each output.",
            )
        if tuple(got.shape) != tuple(want["shape"]) or got.dtype.name != want["dtype"]:
            found = f"{tuple(got.shape)} {got.dtype.name}"
            message = f"output {want['name']} is {found} instead of {tuple(want['shape'])} {want['dtype']}"
            raise BuildRefused(message, rule="outputs")
        if got.allocation.kind != "buffer" or not got.is_contiguous():
            raise BuildRefused(
                f"output {want['name']} is not a contiguous tensor that the host code allocated",
                rule="outputs",
                hint="Allocate each output, for example with torch.empty, and return it without a transposition.",
            )
        outputs.append(_pointer(got))
    if not recorder.launches:
        raise BuildRefused(
            "the host code launches nothing", rule="outputs", hint="Launch a triton.jit function: kernel[grid](...)."
        )
    buffers = tuple(Buffer(one.size_bytes, one.fill) for one in torch.allocations)
    kernels, launches = tuple(recorder.kernels), tuple(recorder.launches)
    return LaunchPlan(recorder.capability, buffers, kernels, launches, tuple(outputs))


def _pointer(tensor: Tensor) -> Pointer:
    offset = tensor.storage_offset() * tensor.element_size()
    return Pointer(tensor.allocation.kind, tensor.allocation.number, offset)


class _Recorder:
    """The driver that replaces Triton's own: it lets Triton compile for the GPU of the job's settings, and records
    launches instead of starting them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.capability: int = settings["capability"]
        self._settings = settings
        self.kernels: list[Code] = []
        self.launches: list[Launch] = []
        self.utils = self
        self.launcher_cls = self._launcher

    @staticmethod
    def is_active() -> bool:
        """Return True, so that Triton uses this driver."""
        return True

    def get_current_target(self) -> Any:
        """Return the architecture of the GPU for which Triton compiles."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def set_current_device(self, _: int) -> None:
        """Do nothing: there is only one device."""

    def get_current_stream(self, _: int = 0) -> int:
        """Return 0, the default stream."""
        return 0

    def get_device_capability(self, _: int = 0) -> tuple[int, int]:
        """Return the major and minor number of the compute capability."""
        return self.capability // 10, self.capability % 10

    def get_device_properties(self, _: int = 0) -> dict[str, int]:
        """Return the properties of the GPU for which Triton's compiler asks."""
        return {
            "max_shared_mem": self._settings["shared_bytes"],
            "multiprocessor_count": self._settings["multiprocessors"],
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 1024,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, _: int) -> tuple[None, int, int, int, int]:
        """Record device code, and return what Triton's own function returns: no module, a handle, registers,
        spills, threads.

        The handle is the number of the code in the plan. Registers and spills are 0, because only the GPU's
        driver knows them.
        """
        self.kernels.append(Code(name, bytes(binary), shared, 1))
        return None, len(self.kernels) - 1, 0, 0, 1024

    def unload_module(self, _: object) -> None:
        """Do nothing, because this driver loads no module."""

    def get_benchmarker(self) -> Any:
        """Raise BuildRefused, because autotuning would measure while the plan is built."""
        raise BuildRefused(
            "the kernel uses triton.autotune, which measures while the launch plan is built",
            rule="autotune",
            hint="Write one configuration; the search tries other configurations.",
        )

    def _launcher(self, src: Any, metadata: Any) -> Any:
        types = dict(src.signature)

        def launch(x: int, y: int, z: int, _: int, handle: int, *rest: Any) -> None:
            values = rest[4:]
            clusters: int = getattr(metadata, "num_ctas", 1)
            cooperative: bool = getattr(metadata, "launch_cooperative_grid", False)
            if clusters != 1 or cooperative:
                raise BuildRefused(
                    "a launch uses clusters or a cooperative grid, which can not be replayed",
                    rule="launch",
                    hint="Launch without num_ctas and launch_cooperative_grid.",
                )
            code = self.kernels[handle]
            self.kernels[handle] = Code(code.name, code.binary, code.shared_bytes, metadata.num_warps)
            arguments = tuple(
                _argument(name, kind, value)
                for (name, kind), value in zip(types.items(), values, strict=True)
                if kind != "constexpr"
            )
            scratch = int(getattr(metadata, "global_scratch_size", 0) or 0)
            self.launches.append(Launch(handle, (int(x), int(y), int(z)), arguments, scratch))

        return launch


def _argument(name: str, kind: Any, value: Any) -> Pointer | Scalar:
    if isinstance(kind, str) and kind.startswith("*") and isinstance(value, Tensor):
        return _pointer(value)
    if kind in SCALARS and isinstance(value, int | float):
        return Scalar(kind, value)
    raise BuildRefused(
        f"argument {name} of type {kind} can not be replayed", rule="launch", hint="Pass tensors and plain numbers."
    )


def _message(error: BaseException) -> str:
    """Return Triton's message without its code frame."""
    inner: BaseException | None = error
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    text = str(inner if inner is not None and str(inner) else error).strip()
    return f"{type(error).__name__}: {text}"[:2000]


def _located(refusal: BuildRefused, error: BaseException, path: Path) -> BuildRefused:
    """Return the refusal with the line of the kernel's file that it is about.

    The line is the file's last one in the traceback. If the traceback has no line of that file, the line comes from
    Triton's error.
    """
    line = 0
    node: Any = getattr(error, "node", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    if hasattr(node, "lineno"):
        source = path.read_text(encoding="utf-8")
        line = _absolute(source, str(getattr(error, "src", "") or ""), int(node.lineno)) or line
    return BuildRefused(refusal.message, rule=refusal.rule, line=refusal.line or line, hint=refusal.hint)


def _absolute(source: str, part: str, line: int) -> int:
    """Return the number in the file ``source`` of a function's line ``line``; 0 if the file lacks the function.

    ``part`` is the function's text, in which lines count from 1.
    """
    place = source.find(part) if part else -1
    return source[:place].count("\n") + line if place >= 0 else 0
