"""Stand-in for nrtpy: the documented classes and arguments."""

import base64
import json
import os
import sys
import time

sys.path.append(os.path.abspath(__file__ + "/../.."))
import device
import neff_file

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

    program = None
    latency_ms = 0.5

    @classmethod
    def load_from_neff(cls, neff_path, name=None, core_id=0, cc_enabled=False, rank_id=0, world_size=1):
        """Load."""
        made = cls()
        device.use()
        neff = neff_file.unpack(neff_path)
        if neff.get("lnc", 1) != int(os.environ.get("NEURON_RT_VIRTUAL_CORE_SIZE", "1")):
            raise NrtError("NRT Error NRT_INVALID(2): the NEFF was compiled for another LNC")
        made.input_tensors_info = dict.fromkeys(neff["inputs"])
        made.outputs = neff["outputs"]
        if "program" in neff:
            made.read(base64.b64decode(neff["program"]))
        return made

    def read(self, program):
        """Return the time of a kernel: the simulator's latency if it can be computed."""
        from acceld.nki.ir.codec import decode
        from acceld.nki.timing.timeline import timeline

        self.program = decode(program)
        self.latency_ms = timeline(self.program).latency_us / 1000
        if wrong(self.program) == "fast":
            self.latency_ms /= 10

    def scenario(self):
        """Return the fault to simulate, from the environment or from the name of the kernel's function."""
        return os.environ.get("STANDIN_SCENARIO") or wrong(self.program)

    def __call__(self, inputs, outputs=None, save_trace=False, ntff_name=None):
        with device.busy("run", self.program):
            return self.execute(inputs, save_trace, ntff_name)

    def execute(self, inputs, save_trace, ntff_name):
        """Execute once."""
        scenario = self.scenario()
        if device.sick():
            raise NrtError("NRT Error NRT_HW_ERROR(6): Failed to execute model")
        if scenario == "poison":
            device.poison()
            raise NrtError("NRT Error NRT_EXEC_UNIT_UNRECOVERABLE(101): Failed to execute model")
        if scenario == "oob":
            raise NrtError("NRT Error NRT_EXEC_OOB(1006): Failed to execute model")
        if scenario == "nan":
            raise NrtError("NRT Error NRT_EXEC_COMPLETED_WITH_NUM_ERR(1003): Failed to execute model")
        if scenario == "hang":
            time.sleep(600)
        if scenario == "crash":
            os.kill(os.getpid(), 9)
        if save_trace:
            with open(ntff_name, "w") as file:
                json.dump({"ticks": 20}, file)
        if self.program is not None:
            from acceld.nki.execute.interpreter import execute

            results = execute(self.program, [one.value.copy() for one in inputs.values()])
            if os.environ.get("STANDIN_NAMES") == "swapped":
                results = results[::-1]
            return {name: NrtpyTensor(one, name) for name, one in zip(self.outputs, results)}  # noqa: B905
        left, right = inputs.values()
        return {name: NrtpyTensor(left.value + right.value, name) for name in self.outputs}

    def benchmark(self, inputs, outputs=None, warmup_iter=5, benchmark_iter=5, mode="device"):
        """Time on the device."""
        if mode not in ("device", "host"):
            raise ValueError("mode is device or host")
        lost = self.scenario() == "lost events"
        with device.busy("time", self.program):
            time.sleep(0.02)
        slowed = 1.5 if self.scenario() == "shared memory" and device.neighbor_is_used() else 1.0
        if self.scenario() == "two events":
            return BenchmarkResult([self.latency_ms / 2] * (2 * benchmark_iter))
        if self.scenario() == "start-up":
            executions = [self.latency_ms + (1.0 if n < 5 else 0.0) for n in range(warmup_iter + benchmark_iter)]
            return BenchmarkResult(executions[warmup_iter:])
        times = [0.0 if lost else slowed * self.latency_ms * (1 + 0.002 * (n % 3)) for n in range(benchmark_iter)]
        return BenchmarkResult(times)


def wrong(program):
    """Return the scenario in the name of a program's entry: ``kernel_crash`` crashes."""
    entry = getattr(program, "entry", "")
    return entry[len("kernel_") :].replace("_", " ") if entry.startswith("kernel_") else ""
