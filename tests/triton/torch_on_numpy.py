"""A stand-in for torch whose tensors hold data, for Triton's interpreter: the data lies in numpy arrays on the host."""

import sys
from contextlib import contextmanager

import numpy as np

from acceld.devices.cuda.blank_torch import Allocation, BlankTorch, Tensor
from acceld.workloads.inputs import numpy_dtype


class Memory(Allocation):
    """An allocation of real memory, at a multiple of 64 bytes."""

    def __init__(self, kind, number, size_bytes, fill=None):
        super().__init__(kind, number, size_bytes, fill)
        whole = np.full(size_bytes + 64, 0xA5 if fill is None else fill, np.uint8)
        skipped = -whole.ctypes.data % 64
        self.bytes = whole[skipped : skipped + size_bytes]

    @property
    def address(self):
        return self.bytes.ctypes.data if self.size_bytes else 64


class Storage:
    """The part of a storage that the interpreter uses. The storage is on the host."""

    def __init__(self, memory):
        self.memory = memory

    def data_ptr(self):
        return self.memory.address

    def cpu(self):
        return self

    def copy_(self, other):
        assert other.memory is self.memory
        return self


class DataTensor(Tensor):
    """A tensor with elements."""

    def untyped_storage(self):
        return Storage(self.allocation)

    def new_empty(self, *shape, dtype=None, device=None):
        return sys.modules["torch"].empty(*shape, dtype=dtype or self.dtype)

    def set_(self, storage, offset, size, stride):
        self.allocation, self._place, self.shape, self._strides = storage.memory, offset, size, stride
        return self

    def numpy(self):
        assert self.is_contiguous()
        flat = self.allocation.bytes.view(numpy_dtype(self.dtype.name))
        return flat[self._place : self._place + self.numel()].reshape(self.shape)


class DataTorch(BlankTorch):
    """Stand in for the module ``torch``, with data in numpy arrays."""

    tensor_class, allocation_class = DataTensor, Memory

    def tensor(self, array):
        """Return a tensor that holds a copy of a numpy array."""
        made = self.empty(array.shape, dtype=getattr(self, array.dtype.name))
        made.numpy()[...] = array
        return made


@contextmanager
def interpreting(monkeypatch):
    """Let Triton interpret kernels, and give this module to kernels that import torch."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch = DataTorch(132, 90)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda", torch.cuda)
    yield torch
