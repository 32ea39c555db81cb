"""What a compiler or a device said of a kernel, as a status and a failure: a value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.model import Failure, Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kernel's failure. What the harness or the device is to blame for is a DeviceError instead."""

    status: Status
    failure: Failure
