"""Stand-in for the compile-only class of nki 0.3; STANDIN_API says how another version of it differs."""

import os
import sys

sys.path.append(os.path.abspath(__file__ + "/../../../.."))
import neff_file


class CompileKernel:
    """Writes ``kernel.neff`` into ``artifacts_dir`` without a device."""

    def __init__(self, *, func, artifacts_dir, _enable_simulation):
        if not _enable_simulation:
            raise RuntimeError("without _enable_simulation the kernel would run")
        if os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") not in ("trn2", "trn3"):
            raise ValueError("this compiler knows trn2 and trn3")
        self.func, self.folder = func, artifacts_dir
        if os.environ.get("STANDIN_API") == "CompileKernel fails":
            raise RuntimeError("CompileKernel was replaced")

    def __call__(self, *arrays, **scalars):
        record, outputs = {"lnc": 1}, None
        if os.environ.get("STANDIN_COMPUTES"):
            from tests.standin_neuron.computed import program, target

            chip, lnc = target()
            record = {"lnc": lnc, "program": program(self.func, arrays, scalars, chip=chip, lnc=lnc)}
            outputs = neff_file.outputs_of(record["program"])
        else:
            outputs = [("output_0", self.func(*arrays, **scalars).nbytes)]
        inputs = [(name, one.nbytes) for name, one in zip(self.func.__code__.co_varnames, arrays)]  # noqa: B905
        with open(os.path.join(self.folder, "kernel.neff"), "wb") as file:
            file.write(neff_file.pack(inputs, outputs, **record))


if os.environ.get("STANDIN_API") == "no _enable_simulation":

    class CompileKernel(CompileKernel):
        """The class of later versions, which never runs a kernel."""

        def __init__(self, *, func, artifacts_dir, target):
            super().__init__(func=func, artifacts_dir=artifacts_dir, _enable_simulation=True)


if os.environ.get("STANDIN_API") == "no CompileKernel":
    del CompileKernel
