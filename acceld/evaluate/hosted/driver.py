"""Define the interface of a backend whose kernels run with data on this machine.

A *hosted* kernel (C and numpy on the host's processor, Triton on a GPU) runs in a worker process that has its data. So
it can not be handed to a trusted runner, as a kernel for Trainium can. :mod:`acceld.evaluate.hosted` has the protocol
by which its times and outputs can be trusted nevertheless.

A :class:`Driver` has the parts that differ between backends. It names three functions that run in child processes.
Their modules are loaded before the fork, because a jail has no files to import from:

* **builder** (jailed, no data): ``build(job) -> Built``. ``job["scratch"]`` is a folder that it may write to. It
  raises :class:`BuildRefused` for a kernel that can not be built.
* **worker** (jailed, with data): ``prepare(job, artefact) -> call``, where ``artefact`` is the path of the built bytes.
  ``call(inputs, outputs)`` runs the kernel once, and returns when every output is complete. Its arrays are views of
  memory shared with the judge. It returns None, or the microseconds that its own device clock measured. These are only
  stored beside the judge's own time, unless the driver's ``clock`` is ``claimed``.
* **reference** (trusted, after the worker has ended): the workload's numpy reference in float64, unless the driver
  names another function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from acceld.errors import AcceldError
from acceld.model import Failure, Kernel
from acceld.roofline import Peaks

Job = Mapping[str, Any]
"""Description of the kernel and the workload for a child process, as JSON; :func:`job_of` makes the description. A
worker adds ``checked``: True if its calls are only checked, not timed.
"""

Call = Callable[[Sequence[Any], Sequence[Any]], float | None]
"""Function that runs the kernel once on its inputs and outputs. Inputs are arrays and Python numbers in the kernel's
order.
"""


STATIC_BYTES = "static_bytes"
"""Name of a built kernel's counter. The counter has the bytes of memory that the kernel keeps from one call to the
next.
"""


class BuildRefused(AcceldError):
    """Raised by a builder for a kernel that can not be built. ``rule`` is a stable name, ``line`` a line of the kernel
    (0 if unknown).
    """

    def __init__(self, message: str, *, rule: str = "compile", line: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.line = line


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a builder: the built bytes, and a log for people, such as warnings and vectorized loops."""

    artefact: bytes
    log: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a child process besides computing on its own memory.

    - ``read_paths``: files and folders that it may read. With ``execute`` it may also run them or map them as
      code.
    - ``processes``: the most processes and threads of the child; with 1 the child can make no further process or
      thread.
    - ``device_paths``: devices that it may open for reading and writing.
    """

    memory_bytes: int = 2 << 30
    processes: int = 1
    execute: bool = False
    read_paths: tuple[str, ...] = ()
    device_paths: tuple[str, ...] = ()
    own_code: bool = False
    """True if the process runs only acceld's own code, so that it may read files as a reference may."""
    libraries: tuple[str, ...] = ()
    """Paths of shared libraries that the child of a reference loads first, so that other libraries find them by name.
    """


@dataclass(frozen=True, slots=True)
class Lease:
    """A device to time on: a processor core or a GPU. A device runs one timing at a time."""

    index: int
    name: str
    """Name such as ``core 1`` or ``GPU 0 (H100)``."""


Clock = Literal["processor", "wall", "claimed"]
"""Names of clocks.

``processor`` is the worker's processor time as the system accounts it, read by the judge while the worker is stopped.
``wall`` is the judge's wall clock. ``claimed`` is the worker's device clock, limited from above by the wall clock.
"""


class Driver(Protocol):
    """The interface of a backend. The methods run in the daemon, also in threads, and never touch a candidate's
    code.
    """

    backend: str
    clock: Clock
    builder: str
    """``module:function`` of the builder."""
    worker: str
    """``module:function`` of the function that prepares the kernel in the worker."""
    batch_bytes: int
    """Limit on the bytes of the inputs and outputs of all calls of one session."""
    reference: str
    """``module:function`` that computes expected outputs; empty for the workload's own reference."""

    def check(self, api: str | None = None) -> None:
        """Raise DeviceError, with what to install, if this machine can not run kernels of ``api``.

        If ``api`` is None, raise DeviceError only if this machine can not run kernels of any API of the backend.
        """
        ...

    def leases(self) -> Sequence[Lease]:
        """Return the devices of this machine on which kernels can be timed."""
        ...

    def refuse(self, kernel: Kernel) -> Failure | None:
        """Return a failure if the policy forbids a candidate's source, else None. The user's own kernels are not
        checked.
        """
        ...

    def building(self, api: str) -> Rights:
        """Return the rights of the builder's process."""
        ...

    def running(self, api: str, artefact: str, lease: Lease) -> Rights:
        """Return what the worker's process may do while it runs the kernel. ``artefact`` is the path of the built bytes."""
        ...

    def referring(self) -> Rights:
        """Return the rights of the process that runs :attr:`reference`. This method is not called if
        :attr:`reference` is empty.
        """
        ...

    def settings(self, api: str) -> Mapping[str, Any]:
        """Return settings for builder and worker, such as compiler and flags.

        A stored result of a build is reused only if it was built with equal settings.
        """
        ...

    def learn(self, folder: Path, *, again: bool = False) -> None:
        """Measure the rates of this machine, or read the rates that are stored in ``folder``. Measuring may take
        seconds.

        Pass ``again`` if a kernel seems to exceed the rates: then those rates are measured again that may be too low
        because other work slowed the measurement down.
        """
        ...

    def peaks(self, chip: str) -> Peaks | None:
        """Return the rates that good kernels reach, from which percentages are computed; None if the rates are unknown."""
        ...

    def limits(self, chip: str) -> Peaks | None:
        """Return the rates that no kernel can exceed; None if the rates are unknown. A kernel that seems faster than
        these rates is suspect.
        """
        ...

    def condition(self, lease: Lease) -> Mapping[str, Any]:
        """Return facts on which the device's speed depends, such as clocks and throttling.

        Called before and after each timing.
        """
        ...

    def sdk(self, api: str) -> str:
        """Return the name and the version of the compiler or library, to show in profiles."""
        ...


def job_of(kernel: Kernel, arguments: Sequence[Any], outputs: Sequence[Any], settings: Mapping[str, Any]) -> Job:
    """Return the description of a kernel, its arguments and its outputs, from which child processes work.

    ``arguments`` and ``outputs`` are the workload's, in the kernel's layout.
    """
    return {
        "api": kernel.api,
        "text": kernel.text,
        "filename": kernel.filename,
        "entry": kernel.entry,
        "grid": list(kernel.grid),
        "arguments": [
            {"name": one.name, "value": one.value}
            if one.value is not None
            else {"name": one.name, "shape": list(one.kernel_shape), "dtype": one.dtype}
            for one in arguments
        ],
        "outputs": [{"name": one.name, "shape": list(one.kernel_shape), "dtype": one.dtype} for one in outputs],
        "settings": dict(settings),
    }
