"""Write and read the file with a job's answer.

This module imports little, because every child process imports it.
"""

from __future__ import annotations

import os
from typing import Self


class Reply:
    """An open file with a job's answer. A hostile process may have written it, so it must be read with a limit."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def size(self) -> int:
        """Return the number of bytes in the file."""
        return os.fstat(self.descriptor).st_size

    def read(self, limit: int, offset: int = 0) -> bytes:
        """Return at most ``limit`` bytes from ``offset`` on."""
        return os.pread(self.descriptor, limit, offset)

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor, with as many system calls as needed."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
