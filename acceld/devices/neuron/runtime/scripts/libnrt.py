"""Run a NEFF through AWS's runtime library, for machines without nrtpy and spike.

The documented calls of libnrt have no device clock. So this module runs kernels on data, and the profiler times
them. Runs on Python >= 3.8, standard library only. Calls and the layout of a tensor's record are as in
``nrt/nrt.h``.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnrt.so.1"
FRAMEWORK_NONE = 1
ON_DEVICE = 0
INPUT = 0
ALL = -1


class TensorInfo(ctypes.Structure):
    """One tensor of a model, as libnrt describes it; ``usage`` is 0 for an input."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("usage", ctypes.c_int),
        ("size", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_uint32)),
        ("ndim", ctypes.c_uint32),
    )


class TensorInfos(ctypes.Structure):
    """Head of libnrt's list of tensors. The tensors follow it in memory."""

    _fields_ = (("count", ctypes.c_uint64), ("first", TensorInfo * 0))


class NrtError(Exception):
    """Raised if a call of the library returned a status that means failure."""

    def __init__(self, call: str, status: int) -> None:
        Exception.__init__(self, f"NRT_STATUS {status} from {call}")


class Libnrt:
    """The library, with its calls declared. A process has one instance, because the library owns the process's
    cores.
    """

    _opened: Libnrt | None = None

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL(LIBRARY)
        handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        arguments = {
            "nrt_init": (ctypes.c_int, text, text),
            "nrt_load": (handle, size, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(handle)),
            "nrt_get_model_tensor_info": (handle, ctypes.POINTER(ctypes.POINTER(TensorInfos))),
            "nrt_allocate_tensor_set": (ctypes.POINTER(handle),),
            "nrt_tensor_allocate": (ctypes.c_int, ctypes.c_int, size, text, ctypes.POINTER(handle)),
            "nrt_tensor_write": (handle, text, size, size),
            "nrt_tensor_read": (handle, handle, size, size),
            "nrt_add_tensor_to_tensor_set": (handle, text, handle),
            "nrt_execute": (handle, handle, handle),
        }
        for name, types in arguments.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
        self.call("nrt_init", FRAMEWORK_NONE, b"", b"")

    @classmethod
    def opened(cls) -> Libnrt:
        """Return this process's instance. Raise OSError if the library is not installed, and NrtError if the library
        gets no core.
        """
        if cls._opened is None:
            cls._opened = cls()
        return cls._opened

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library. Raise NrtError for any status but 0."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise NrtError(name, status)


class LoadedNeff:
    """A NEFF that is loaded on the first visible core, with device tensors for its inputs and outputs."""

    def __init__(self, library: Libnrt, neff: bytes) -> None:
        self._library = library
        self._model = ctypes.c_void_p()
        library.call("nrt_load", neff, len(neff), 0, ALL, ctypes.byref(self._model))
        infos = ctypes.POINTER(TensorInfos)()
        library.call("nrt_get_model_tensor_info", self._model, ctypes.byref(infos))
        first = ctypes.addressof(infos.contents) + TensorInfos.first.offset
        reported = (TensorInfo * infos.contents.count).from_address(first)
        self._sets = (self._new_set(), self._new_set())
        self._tensors: dict[str, tuple[ctypes.c_void_p, int]] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        for one in reported:
            self._add(one.name, one.usage == INPUT, one.size)

    def _new_set(self) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._library.call("nrt_allocate_tensor_set", ctypes.byref(made))
        return made

    def _add(self, name: bytes, is_input: bool, size: int) -> None:
        tensor = ctypes.c_void_p()
        self._library.call("nrt_tensor_allocate", ON_DEVICE, 0, size, name, ctypes.byref(tensor))
        self._library.call("nrt_add_tensor_to_tensor_set", self._sets[0 if is_input else 1], name, tensor)
        self._tensors[name.decode()] = (tensor, size)
        (self.inputs if is_input else self.outputs).append(name.decode())

    def write(self, name: str, data: bytes) -> None:
        """Fill a tensor of the device with bytes.

        The outputs have to be filled before each run, too. Otherwise an element that the kernel does not write keeps an
        earlier result.
        """
        self._library.call("nrt_tensor_write", self._tensors[name][0], data, 0, len(data))

    def size(self, name: str) -> int:
        """Return the number of bytes of a tensor."""
        return self._tensors[name][1]

    def execute(self) -> None:
        """Execute the NEFF once. Raise NrtError with the device's status if the execution fails."""
        self._library.call("nrt_execute", self._model, self._sets[0], self._sets[1])

    def read(self, name: str) -> bytes:
        """Return a tensor's bytes."""
        tensor, size = self._tensors[name]
        buffer = ctypes.create_string_buffer(size)
        self._library.call("nrt_tensor_read", tensor, buffer, 0, size)
        return buffer.raw
