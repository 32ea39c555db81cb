"""Stand-in for neuronxcc.nki: ``jit`` and ``baremetal`` as documented, nothing else."""

import glob
import os
import stat
import sys

sys.path.append(os.path.abspath(__file__ + "/../../../.."))
import neff_file

if os.environ.get("ACCELD_STANDIN") != "1":
    raise ImportError("a stand-in of the tests must not be used outside them")

ALLOWED = ("--disable-dge", "--logical-nc-config=", "--auto-cast=none", "--target=trn")


class Jitted:
    """A function decorated with ``nki.jit``."""

    def __init__(self, func):
        self.func = func

    def __call__(self, *arguments):
        raise RuntimeError("a jitted kernel needs a framework's tensors")


def jit(func=None, mode="auto", **options):
    """Documented: func, mode."""
    if mode not in ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace") or options:
        raise TypeError("unknown mode or options of nki.jit")
    return Jitted(func) if func else Jitted


class baremetal:
    """Compiles to a NEFF, then runs on a core. Without a core, fails after the NEFF is written."""

    def __init__(
        self, kernel=None, *, save_neff_name=None, save_trace_name=None, additional_compile_opt=None, artifacts_dir=None
    ):
        if isinstance(kernel, Jitted):
            raise TypeError("baremetal takes a plain function")
        if save_trace_name and save_neff_name != "file.neff":
            raise ValueError("with save_trace_name the NEFF must be file.neff")
        if artifacts_dir and os.listdir(artifacts_dir):
            raise ValueError("artifacts_dir must be empty")
        for flag in (additional_compile_opt or "").split():
            if not flag.startswith(ALLOWED):
                raise ValueError(f"neuronx-cc knows no option {flag}")
        self.kernel, self.neff, self.grid = kernel, save_neff_name, ()
        self.flags = additional_compile_opt

    def __getitem__(self, grid):
        self.grid = grid
        return self

    def __call__(self, *arrays, **scalars):
        if any(not hasattr(array, "dtype") for array in arrays):
            raise TypeError("baremetal takes numpy arrays")
        names = self.kernel.__code__.co_varnames
        record = {"flags": self.flags, "grid": list(self.grid), "scalars": scalars}
        if os.environ.get("STANDIN_COMPUTES"):
            from tests.standin_neuron.computed import program

            flags = dict(flag.partition("=")[::2] for flag in self.flags.split())
            chip, lnc = flags["--target"], int(flags["--logical-nc-config"])
            record["program"] = program(
                self.kernel, arrays, scalars, chip=chip, lnc=lnc, grid=self.grid, api="nki_legacy"
            )
            outputs = neff_file.outputs_of(record["program"])
        else:
            lnc = 1
            outputs = [("output_0", self.kernel(*arrays, **scalars).nbytes)]
        inputs = [(name, one.nbytes) for name, one in zip(names, arrays)]  # noqa: B905
        neff = neff_file.pack(inputs, outputs, lnc=lnc, **record)
        with open(self.neff, "wb") as file:
            file.write(neff)
        for device in glob.glob(os.environ.get("STANDIN_DEVICES", "")):
            if stat.S_ISREG(os.stat(device).st_mode):
                with open(device, "w") as file:
                    file.write("executed")
        raise RuntimeError("NeuronCore(s) not available - Requested:nc1-nc1 Available:0")
