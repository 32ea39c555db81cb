"""Stand-in for nrtpy: the documented classes and arguments."""

import json
import os

if os.environ.get("ACCELD_STANDIN") != "1":
    raise ImportError("a stand-in of the tests must not be used outside them")


class NrtError(Exception):
    """An NRT status."""


class NrtpyTensor:
    """A tensor on a core."""

    def __init__(self, value, name):
        self.value, self.name = value, name

    @classmethod
    def from_numpy(cls, arr, name, core_id):
        """Copy to the device."""
        return cls(arr.copy(), name)

    def numpy(self):
        """Copy back."""
        return self.value


class BenchmarkResult:
    """Times in milliseconds."""

    def __init__(self, durations_ms):
        self.durations_ms = durations_ms


class NrtpyModel:
    """A loaded NEFF."""

    @classmethod
    def load_from_neff(cls, neff_path, name=None, core_id=0, cc_enabled=False, rank_id=0, world_size=1):
        """Load."""
        made = cls()
        with open(neff_path) as file:
            made.input_tensors_info = dict.fromkeys(json.load(file)["inputs"])
        return made

    def __call__(self, inputs, outputs=None, save_trace=False, ntff_name=None):
        if os.environ.get("STANDIN_SCENARIO") == "oob":
            raise NrtError("NRT Error NRT_EXEC_OOB(1006): Failed to execute model")
        if save_trace:
            with open(ntff_name, "w") as file:
                json.dump({"ticks": 20}, file)
        left, right = inputs.values()
        return {"output_0": NrtpyTensor(left.value + right.value, "output_0")}

    def benchmark(self, inputs, outputs=None, warmup_iter=5, benchmark_iter=5, mode="device"):
        """Time on the device."""
        if mode not in ("device", "host"):
            raise ValueError("mode is device or host")
        lost = os.environ.get("STANDIN_SCENARIO") == "lost events"
        return BenchmarkResult([0.0 if lost else 0.5 + 0.001 * (n % 3) for n in range(benchmark_iter)])
