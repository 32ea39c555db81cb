"""Stand-in for the compile-only class of nki 0.3."""

import json
import os


class CompileKernel:
    """Writes ``kernel.neff`` into ``artifacts_dir`` without a device."""

    def __init__(self, *, func, artifacts_dir, _enable_simulation):
        if not _enable_simulation:
            raise RuntimeError("without _enable_simulation it would run")
        if os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") not in ("trn2", "trn3"):
            raise ValueError("this compiler knows trn2 and trn3")
        self.func, self.folder = func, artifacts_dir

    def __call__(self, *arrays, **scalars):
        record = {}
        if os.environ.get("STANDIN_COMPUTES"):
            from tests.standin_neuron.computed import program, target

            chip, lnc = target()
            record = {"lnc": lnc, "program": program(self.func, arrays, scalars, chip=chip, lnc=lnc)}
        else:
            self.func(*arrays, **scalars)
        names = self.func.__code__.co_varnames[: len(arrays)]
        with open(os.path.join(self.folder, "kernel.neff"), "w") as file:
            json.dump({"standin": 1, "inputs": list(names), **record}, file)
