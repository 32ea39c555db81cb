"""Stand-in for nki 0.6: no private class, a jitted kernel compiles and runs when it is called with numpy arrays."""

import os
import sys

sys.path.append(os.path.abspath(__file__ + "/../../.."))
import neff_file

if os.environ.get("ACCELD_STANDIN") != "1":
    raise ImportError("a stand-in of the tests must not be used outside them")

FOLDER = os.environ.get("NKI_ARTIFACTS_DIR")
"""Read when the package is imported, as documented."""


class Jitted:
    """A function decorated with ``nki.jit``."""

    def __init__(self, func):
        self.func = func

    def __getitem__(self, lnc):
        if lnc != int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1")):
            raise RuntimeError("NCC_EVRF066: LNC mismatch")
        return self

    def __call__(self, *arrays, **scalars):
        from tests.standin_neuron.computed import program, target

        chip, lnc = target()
        found = program(self.func, arrays, scalars, chip=chip, lnc=lnc)
        inputs = [(name, one.nbytes) for name, one in zip(self.func.__code__.co_varnames, arrays)]  # noqa: B905
        with open(os.path.join(FOLDER, "kernel.neff"), "wb") as file:
            file.write(neff_file.pack(inputs, neff_file.outputs_of(found), lnc=lnc, program=found))
        raise RuntimeError("NeuronCore(s) not available - Requested:nc1-nc1 Available:0")


def jit(func=None, **_):
    """Marks a kernel."""
    return Jitted(func) if func else Jitted
