"""Call the functions of NVIDIA's driver library that the replay of a launch plan needs. Errors become DriverError."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_REGISTERS, _LOCAL = 4, 3  # CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
_HEAP = 2  # CU_LIMIT_MALLOC_HEAP_SIZE
_STATIC_SHARED_BYTES = 48 << 10
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class DriverError(RuntimeError):
    """Raised if a call of the driver fails. The message has the call, the error's name and the driver's text."""


class Driver:
    """A CUDA context on one GPU, and the driver's functions in it. Device pointers are plain numbers."""

    def __init__(self, device: int, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise DriverError(f"{library} can not be loaded: {error}") from error
        # Load device code at once: by default CUDA would load it at the first launch, between two timed events.
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        self._call("cuInit", 0)
        handle = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(handle), device)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            named, said = ctypes.c_char_p(), ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(named))
            self._library.cuGetErrorString(code, ctypes.byref(said))
            what = (named.value or b"unknown error").decode(), (said.value or b"").decode()
            raise DriverError(f"{name}: {what[0]} ({code}): {what[1]}")

    def version(self) -> int:
        """Return the newest CUDA version that the driver supports; 13000 means 13.0."""
        found = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    def allocate(self, size_bytes: int) -> int:
        """Allocate ``size_bytes`` of device memory, at least one byte, and return its address."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(1, size_bytes)))
        return pointer.value

    def fill(self, pointer: int, byte: int, size_bytes: int) -> None:
        """Set ``size_bytes`` bytes of device memory at ``pointer`` to the value ``byte``."""
        if size_bytes:
            self._call("cuMemsetD8_v2", ctypes.c_uint64(pointer), ctypes.c_ubyte(byte), ctypes.c_size_t(size_bytes))

    def write(self, pointer: int, address: int, size_bytes: int) -> None:
        """Copy ``size_bytes`` bytes from the host's ``address`` to device memory at ``pointer``."""
        if size_bytes:
            host, count = ctypes.c_void_p(address), ctypes.c_size_t(size_bytes)
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), host, count)

    def read(self, address: int, pointer: int, size_bytes: int) -> None:
        """Copy ``size_bytes`` bytes from device memory at ``pointer`` to the host's ``address``."""
        if size_bytes:
            host, count = ctypes.c_void_p(address), ctypes.c_size_t(size_bytes)
            self._call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(pointer), count)

    def no_heap(self) -> None:
        """Make the heap of device code as small as the driver allows, so that a kernel can not keep data there."""
        self._call("cuCtxSetLimit", _HEAP, ctypes.c_size_t(0))

    def load(self, binary: bytes) -> ctypes.c_void_p:
        """Load compiled device code, and return the driver's module for it."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), binary)
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Unload a module. This frees the memory that its code declared."""
        self._call("cuModuleUnload", module)

    def function(self, module: ctypes.c_void_p, name: str, shared_bytes: int) -> ctypes.c_void_p:
        """Return a device function of a module, which may then use ``shared_bytes`` of shared memory."""
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        if shared_bytes > _STATIC_SHARED_BYTES:
            self._call("cuFuncSetAttribute", found, _DYNAMIC_SHARED, shared_bytes)
        return found

    def registers(self, function: ctypes.c_void_p) -> tuple[int, int]:
        """Return the registers of a thread, and the bytes that a thread spills to local memory."""
        found = []
        for attribute in (_REGISTERS, _LOCAL):
            value = ctypes.c_int()
            self._call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
            found.append(value.value)
        return found[0], found[1]

    def launching(
        self,
        function: ctypes.c_void_p,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[bytes],
    ) -> Callable[[], None]:
        """Return a function that launches a device function on the default stream.

        ``arguments`` are the bytes that the device function reads, one entry for each argument.
        """
        values = [ctypes.create_string_buffer(one, len(one)) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))
        given = (function, *grid, threads, 1, 1, shared_bytes, None, pointers, None)

        def launch(_kept: object = values) -> None:
            self._call("cuLaunchKernel", *given)

        return launch

    def wait(self) -> None:
        """Wait until the device has finished all queued work. Raise DriverError if device code has failed."""
        self._call("cuCtxSynchronize")

    def event(self) -> ctypes.c_void_p:
        """Return a new event."""
        made = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(made), 0)
        return made

    def record(self, event: ctypes.c_void_p) -> None:
        """Record an event on the default stream."""
        self._call("cuEventRecord", event, None)

    def happened(self, event: ctypes.c_void_p) -> bool:
        """Return True if the device has reached a recorded event."""
        code = self._library.cuEventQuery(event)
        if code not in (0, _NOT_READY):
            self._call("cuEventQuery", event)
        return bool(code == 0)

    def elapsed_us(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Return the microseconds between two events that the device has reached."""
        milliseconds = ctypes.c_float()
        name = "cuEventElapsedTime_v2" if hasattr(self._library, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self._call(name, ctypes.byref(milliseconds), start, end)
        return 1000.0 * milliseconds.value
