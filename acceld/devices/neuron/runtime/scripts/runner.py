"""Run kernels on one leased core: load a NEFF once, run it on data, time it. No candidate code runs in this
process.

The process answers records until ``close`` or the end of the pipe. Operations:

- ``hello``: versions, and the runtime that will be used.
- ``load``: ``neff`` (path), ``inputs`` and ``outputs`` (name, dtype, shape), ``folder`` and ``traces`` (private).
- ``run``: the inputs' bytes in order; answers with the outputs' bytes in order.
- ``time``: ``warmups`` and ``iterations``, on the inputs of the last ``run``. Answers with ``samples_us`` (from the
  device's own clock) and ``summary`` (the profiler's text for one more execution, may be empty), or with ``summaries``
  (the profiler's text, one for each execution).

All operations but ``hello`` name a ``slot`` (0 if they do not). Each slot keeps a NEFF loaded, so that rounds
of several kernels can alternate.

Every successful answer has ``reported``: all else that the tools printed. An error answer has ``ok: false``,
``kind`` and ``message``. The kinds are ``nrt``, ``missing``, ``protocol``, ``proof``, ``profiler`` (the tool
itself failed) and ``shape`` (the NEFF's tensors are not those of the kernel). Runtimes, best first: ``nrtpy``,
``spike``, ``libnrt`` (AWS's library by ctypes; the profiler times), ``capture`` (neuron-explorer or
neuron-profile, which load and run the NEFF themselves). ``nki.baremetal`` is not used: it would bring the
candidate's Python next to the data.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# These modules lie beside this file, where a type checker does not look.
import confine  # type: ignore[import-not-found,unused-ignore]  # beside this file
import frames  # type: ignore[import-not-found,unused-ignore]  # beside this file
import libnrt  # type: ignore[import-not-found,unused-ignore]  # beside this file
import neff as neff_file  # type: ignore[import-not-found,unused-ignore]  # beside this file

SAVED = re.compile(r'saved output "(?P<name>[^"]*)" as "(?P<file>[^"]*)"')
DEVICE_RESOLUTION_US = 0.001
"""Resolution of the device's time stamps, which count nanoseconds."""


class RunnerError(Exception):
    """Raised for a failure that becomes an answer with ``ok: false``."""

    def __init__(self, kind: str, message: str) -> None:
        Exception.__init__(self, message)
        self.kind = kind


def split(data: bytes, specs: list[dict[str, Any]]) -> list[bytes]:
    """Return the bytes of each array of a record. Raise RunnerError if the arrays' lengths do not add up to the
    length of ``data``.
    """
    parts, at = [], 0
    for spec in specs:
        parts.append(data[at : at + spec["nbytes"]])
        at += spec["nbytes"]
    if at != len(data):
        raise RunnerError("protocol", f"inputs hold {len(data)} bytes; their shapes make {at}")
    return parts


NRT = re.compile(r"NRT[ _]|NeuronCore\(s\) not available|execution timeout \(|INFER_ERROR_SUBTYPE")
"""Matches a failure that the runtime reported through a tool. For any other failure the tool itself is at fault."""
SAID: list[str] = []
"""Texts that the tools printed since the last answer."""
_SAID_CHARACTERS = 4000


def call(command: list[str], folder: str) -> str:
    """Run a tool in ``folder``, and return everything that it printed on stdout and stderr.

    Raise RunnerError, with the end of that output, if the tool fails. The error's kind is ``nrt`` if the
    runtime reported a failure or if a signal ended the tool; otherwise ``profiler``.
    """
    me = os.getpid()
    # The tool holds the core, so it must end with this process, even if this process is killed.
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: confine.end_with_parent(me),
    )
    said = done.stdout + done.stderr
    name = f"{os.path.basename(command[0])} {command[1]}"
    if done.returncode != 0:
        kind = "nrt" if NRT.search(said) or done.returncode < 0 else "profiler"
        text = said[-_SAID_CHARACTERS:].strip() or f"the tool printed nothing and ended with status {done.returncode}"
        raise RunnerError(kind, f"{name}: {text}")
    if (command[1] != "view" and said.strip()) or done.stderr.strip():
        SAID.append(f"{name}: {said[-_SAID_CHARACTERS:].strip()}")
    return said


def names_in(reported: list[tuple[str, int]], wanted: list[dict[str, Any]], what: str) -> list[str]:
    """Return the name that the NEFF gives to each tensor of the kernel.

    Raise RunnerError, with both lists of tensors, if the tensors can not be matched.
    """
    try:
        names: list[str] = neff_file.pair(wanted, reported, what)
    except ValueError as error:
        raise RunnerError("shape", str(error)) from error
    own = [one["name"] for one in wanted]
    if names != own:
        SAID.append(f"{what}: the kernel's {own} are {names} in the NEFF")
    return names


def sizes_of(info: Any, known: dict[str, int]) -> list[tuple[str, int]]:
    """Return the name and the number of bytes of each tensor in ``info``.

    A model reports records with ``size``, or names alone. Missing sizes come from ``known``, the sizes that the NEFF
    file states. A size that the file does not state either is -1.
    """
    reported = []
    for name in info:
        one = info[name] if isinstance(info, dict) else None
        size = one.get("size") if isinstance(one, dict) else getattr(one, "size", None)
        reported.append((str(name), size if isinstance(size, int) else known.get(str(name), -1)))
    return reported


def view(profiler: str, neff: str, trace: Path, folder: str) -> str:
    """Return the profiler's summary of one trace, as JSON text."""
    return call([profiler, "view", "-n", neff, "-s", str(trace), "--output-format", "summary-json"], folder)


class CaptureRuntime:
    """Run kernels by the profiler's command ``capture``.

    The profiler loads the NEFF, reads inputs from files, and writes outputs and traces to files.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self.name = os.path.basename(program)
        self.inputs: list[str] = []

    def load(self, request: dict[str, Any]) -> None:
        """Keep the request. The profiler loads the NEFF at each capture."""
        self.neff = request["neff"]
        self.outputs, self.neff_outputs = request["outputs"], request["neff_outputs"]
        self.input_specs = request["inputs"]
        reported = request["neff_inputs"]
        self.input_names = (
            names_in(reported, self.input_specs, "inputs") if reported else [one["name"] for one in self.input_specs]
        )
        self.folder = Path(request["folder"])
        self.traces = Path(request["traces"])
        self.traces.mkdir(parents=True, exist_ok=True)

    def give(self, number: int, name: str, data: bytes) -> None:
        """Write input ``number`` to the file that later captures read. Inputs have to be given in the order of
        the arguments.
        """
        path = self.folder / f"input_{number}.bin"
        path.write_bytes(data)
        self.inputs = [*self.inputs[: 2 * number], name, str(path)]

    def run(self, data: bytes) -> bytes:
        """Execute the NEFF once on the given inputs, and return the bytes of the outputs."""
        for number, (name, part) in enumerate(zip(self.input_names, split(data, self.input_specs))):  # noqa: B905  # Python 3.8 has no strict=
            self.give(number, name, part)
        reported = self._capture(self.folder / "check.ntff", "--save-output")
        saved = {match["name"]: self.folder / match["file"] for match in SAVED.finditer(reported)}
        ordered = [name for name, _ in self.neff_outputs if name in saved]
        ordered += [name for name in saved if name not in ordered]
        try:
            names = names_in([(name, saved[name].stat().st_size) for name in ordered], self.outputs, "outputs")
            return b"".join(saved[name].read_bytes() for name in names)
        except FileNotFoundError as error:
            message = f"{self.name} capture said that it saved an output, but did not write the file: {error}"
            raise RunnerError("profiler", message) from error
        finally:
            for file in saved.values():
                if file.exists():
                    file.unlink()

    def time(self, warmups: int, iterations: int) -> dict[str, Any]:
        """Execute the NEFF repeatedly in one load, and return the profiler's summary of each execution after
        the warm-ups.
        """
        for old in self.traces.glob("profile*.ntff"):
            old.unlink()
        total = warmups + iterations
        self._capture(self.traces / "profile.ntff", "--num-exec", str(total), "--profile-nth-exec", "1")
        summaries = []
        for number in range(warmups + 1, total + 1):
            trace = self.traces / ("profile.ntff" if number == 1 else f"profile_exec_{number}.ntff")
            if not trace.is_file():
                raise RunnerError("proof", f"{self.name} wrote no trace of execution {number} ({trace.name})")
            summaries.append(view(self.program, self.neff, trace, str(self.folder)))
        return {"summaries": summaries, "method": f"{self.name} total_time", "resolution_us": None}

    def _capture(self, trace: Path, *options: str) -> str:
        command = [self.program, "capture", "-n", self.neff, "-s", str(trace), *options]
        return call([*command, *self.inputs], str(self.folder))


class PythonRuntime:
    """Run kernels by the package nrtpy or spike. Both have the same classes under different prefixes."""

    def __init__(self, name: str, module: Any, profiler: str) -> None:
        self.name = name
        self.profiler = profiler
        prefix = {"nrtpy": "Nrtpy", "spike": "Spike"}[name]
        self.model_class = getattr(module, prefix + "Model")
        self.tensor_class = getattr(module, prefix + "Tensor")
        self.arguments: dict[str, Any] = {}

    def load(self, request: dict[str, Any]) -> None:
        """Load the NEFF on the only visible core."""
        self.input_specs, self.outputs = request["inputs"], request["outputs"]
        self.neff, self.folder = request["neff"], request["folder"]
        self.traces = Path(request["traces"])
        self.traces.mkdir(parents=True, exist_ok=True)
        self.model = self.model_class.load_from_neff(request["neff"], core_id=0)
        known = dict((*request["neff_inputs"], *request["neff_outputs"]))
        reported = sizes_of(self.model.input_tensors_info, known)
        own = [(one["name"], one["nbytes"]) for one in self.input_specs]
        if any(size < 0 for _, size in reported) and sorted(name for name, _ in reported) == sorted(
            name for name, _ in own
        ):
            reported = own
        self.input_names = names_in(reported, self.input_specs, "inputs")
        self.known = known
        self.output_order = [name for name, _ in request["neff_outputs"]]

    def run(self, data: bytes) -> bytes:
        """Execute the NEFF once on the given inputs, and return the bytes of the outputs."""
        import numpy

        self.arguments = {}
        for name, spec, part in zip(self.input_names, self.input_specs, split(data, self.input_specs)):  # noqa: B905  # Python 3.8 has no strict=
            array = numpy.frombuffer(part, dtype=_dtype(spec["dtype"])).reshape(spec["shape"])
            self.arguments[name] = self.tensor_class.from_numpy(array, name, 0)
        results = self.model(inputs=self.arguments)
        ordered = [name for name in self.output_order if name in results]
        ordered += [name for name in results if name not in ordered]
        parts = {name: numpy.ascontiguousarray(results[name].numpy()).tobytes() for name in ordered}
        names = names_in([(name, len(parts[name])) for name in ordered], self.outputs, "outputs")
        return b"".join(parts[name] for name in names)

    def time(self, warmups: int, iterations: int) -> dict[str, Any]:
        """Return the device's time of each execution, and the profiler's summary of one more execution, which
        is traced.

        The trace proves that the device ran. The summary has the counters; it is empty if the profiler is
        missing or fails.
        """
        result = self.model.benchmark(self.arguments, warmup_iter=warmups, benchmark_iter=iterations, mode="device")
        trace = self.traces / "profile.ntff"
        self.model(inputs=self.arguments, save_trace=True, ntff_name=str(trace))
        if not trace.is_file() or not trace.stat().st_size:
            raise RunnerError("proof", f"{self.name} wrote no trace of an execution")
        try:
            summary = view(self.profiler, self.neff, trace, self.folder) if self.profiler else ""
        except RunnerError as error:
            # The times are the device's own, so they are valid without the profiler's counters.
            summary = ""
            SAID.append(f"the profiler failed; there are no counters: {error}")
        return {
            "summary": summary,
            "samples_us": [1000.0 * ms for ms in result.durations_ms],
            "method": f"{self.name} device",
            "resolution_us": DEVICE_RESOLUTION_US,
        }


class LibraryRuntime:
    """Run kernels by libnrt, on a NEFF that is loaded once. The profiler does the timing, because it reads the
    device's clock.
    """

    name = "libnrt"

    def __init__(self, profiler: str) -> None:
        self.library = libnrt.Libnrt.opened()
        self.clock = CaptureRuntime(profiler) if profiler else None

    def load(self, request: dict[str, Any]) -> None:
        """Load the NEFF on the only visible core."""
        self.input_specs, self.outputs = request["inputs"], request["outputs"]
        self.folder = Path(request["folder"])
        self.neff = libnrt.LoadedNeff(self.library, Path(request["neff"]).read_bytes())
        inputs, outputs = ([(n, self.neff.size(n)) for n in names] for names in (self.neff.inputs, self.neff.outputs))
        self.input_names = names_in(inputs, self.input_specs, "inputs")
        self.output_names = names_in(outputs, self.outputs, "outputs")
        if self.clock is not None:
            self.clock.load(request)

    def run(self, data: bytes) -> bytes:
        """Clear the outputs, execute the NEFF once on the given inputs, and return the bytes of the outputs."""
        parts = split(data, self.input_specs)
        for number, (name, part) in enumerate(zip(self.input_names, parts)):  # noqa: B905  # Python 3.8 has no strict=
            self.neff.write(name, part)
            if self.clock is not None:
                self.clock.give(number, name, part)
        for name in self.neff.outputs:
            self.neff.write(name, bytes(self.neff.size(name)))
        self.neff.execute()
        return b"".join(self.neff.read(name) for name in self.output_names)

    def time(self, warmups: int, iterations: int) -> dict[str, Any]:
        """Return the profiler's summaries of executions on the same inputs. Raise RunnerError if there is no
        profiler.
        """
        if self.clock is None:
            raise RunnerError(
                "missing", "libnrt has no clock of the device: timing needs neuron-explorer or neuron-profile"
            )
        return self.clock.time(warmups, iterations)


def _dtype(name: str) -> Any:
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def find_runtime(profiler: str, wanted: str) -> Any:
    """Return the runtime ``wanted``; the best installed runtime if ``wanted`` is empty.

    Raise RunnerError if that runtime is not installed.
    """
    for name in ("nrtpy", "spike"):
        if wanted in ("", name):
            try:
                return PythonRuntime(name, importlib.import_module(name), profiler)
            except (ImportError, AttributeError):  # the package is not installed, or is another package of that name
                continue
    if wanted in ("", "libnrt"):
        try:
            return LibraryRuntime(profiler)
        except (OSError, AttributeError):  # the library is not installed, or is another library of that name
            pass
    if wanted in ("", "capture") and profiler:
        return CaptureRuntime(profiler)
    raise RunnerError(
        "missing", "a NEFF can not be run: nrtpy, spike, libnrt, neuron-explorer and neuron-profile are all missing"
    )


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution; an empty text if the distribution is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


class Runner:
    """The state of the runner process between two requests: the chosen runtime, and the loaded NEFF of each slot."""

    def __init__(self) -> None:
        self.wanted: tuple[str, str] | None = None
        self.slots: dict[int, Any] = {}

    def answer(self, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the reply to one request, and the reply's bytes. Raise RunnerError for a failure that the caller must
        see.
        """
        operation, slot = request.get("op"), request.get("slot", 0)
        if operation == "hello":
            self.wanted = (request.get("profiler", ""), request.get("runtime", ""))
            runtime = find_runtime(*self.wanted)
            python = "{}.{}.{}".format(*sys.version_info[:3])
            return {"runtime": runtime.name, "python": python, "version": version_of(runtime.name)}, b""
        if self.wanted is None:
            raise RunnerError("protocol", "the first request has to be hello")
        if operation == "load":
            Path(request["folder"]).mkdir(parents=True, exist_ok=True)
            self.slots.pop(slot, None)
            facts = neff_file.facts_of(Path(request["neff"]).read_bytes())
            order = {name: place for place, name in enumerate(request.get("output_names", ()))}
            outputs = sorted(facts.outputs, key=lambda one: order.get(one[0], len(order)))
            runtime = find_runtime(*self.wanted)
            runtime.load(dict(request, neff_inputs=list(facts.inputs), neff_outputs=outputs))
            self.slots[slot] = runtime
            return {}, b""
        if slot not in self.slots:
            raise RunnerError("protocol", f"{operation} before load: slot {slot} has no NEFF")
        if operation == "run":
            return {}, self.slots[slot].run(data)
        if operation == "time":
            return self.slots[slot].time(request["warmups"], request["iterations"]), b""
        raise RunnerError("protocol", f"unknown request {operation!r}")


def main() -> None:
    """Serve requests until ``close`` or the end of the pipe."""
    incoming, outgoing = confine.take_pipes()
    confine.end_with_parent(int(os.environ.get("ACCELD_PARENT", "0")))
    runner = Runner()
    while True:
        got = frames.read(incoming)
        if got is None or got[0].get("op") == "close":
            return
        try:
            SAID.clear()
            record, data = runner.answer(*got)
            record = dict(record, ok=True, reported=list(SAID))
        except RunnerError as error:
            record, data = {"ok": False, "kind": error.kind, "message": str(error)}, b""
        except Exception as error:  # noqa: BLE001 nrtpy's errors carry the NRT status in their text; the caller reads it
            record, data = {"ok": False, "kind": "nrt", "message": f"{type(error).__name__}: {error}"}, b""
        frames.write(outgoing, record, data)


if __name__ == "__main__":
    main()
