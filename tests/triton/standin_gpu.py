"""A stand-in for a GPU: kernels are built as for a real GPU, and Triton's interpreter runs them on the host.

Its times are made up, so nothing but tests may use it; :class:`StandinDriver` is named by no configuration.
"""

import importlib.util
import os
import sys
import time

from torch_on_numpy import DataTorch

from acceld.devices.cuda.driver import CudaDriver
from acceld.devices.cuda.plan import decode
from acceld.evaluate.hosted.driver import Rights
from acceld.workloads.records import ArraySpec

GPU = "0, GPU-standin, Stand-in H100, 9.0, 0.0, 81559, 1980, 1980, 2619, 0x0000000000000000, Enabled, Disabled"


class StandinDriver(CudaDriver):
    """The GPU backend without a GPU."""

    worker = "standin_gpu:prepare"
    reference = ""

    def __init__(self):
        super().__init__(lambda _: GPU)

    def running(self, api, artefact, lease):
        return Rights(8 << 30, 64, True, (artefact, os.path.dirname(__file__), *self.building(api).read_paths))

    def learn(self, folder, *, again=False):
        """Do nothing: there is no driver."""

    def limits(self, chip):
        return None


def prepare(job, artefact):
    """Return a function that runs the job's source under the interpreter and returns half of its time, in microseconds."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch = DataTorch(132, 90)
    sys.modules["torch"], sys.modules["torch.cuda"] = torch, torch.cuda
    size = lambda one: ArraySpec(tuple(one["shape"]), one["dtype"]).size_bytes
    with open(artefact, "rb") as file:
        decode(
            file.read(), [size(one) for one in job["arguments"] if "value" not in one], list(map(size, job["outputs"]))
        )
    path = os.path.join("/tmp", "standin_kernel.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(job["text"])
    spec = importlib.util.spec_from_file_location("standin_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = getattr(module, job["entry"] or "run")

    def call(inputs, outputs):
        started = time.perf_counter()
        given = [torch.tensor(one) if hasattr(one, "dtype") else one for one in inputs]
        returned = run(*given)
        for got, out in zip(returned if isinstance(returned, tuple) else (returned,), outputs, strict=True):
            out[...] = got.numpy()
        return 5e5 * (time.perf_counter() - started)

    return call
