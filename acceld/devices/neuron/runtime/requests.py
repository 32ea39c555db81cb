"""Define a request to compile a kernel, and the key under which its NEFF is cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from acceld.model import Kernel

Scalar = int | float | bool | str
FLAGS: Mapping[str, tuple[str, ...]] = {"nki_legacy": ("--disable-dge", "--auto-cast=none"), "nki": ()}
"""Compiler options by API: the options of the published measurements."""
ROUTES: Mapping[str, tuple[str, ...]] = {
    "nki_legacy": ("neuronxcc.nki.baremetal", "neuronxcc.nki.benchmark"),
    "nki": (
        "nki.framework.compiled",
        "nki.compiler.frontend",
        "nki.compiler.frontend, backend optimizations disabled",
        "nki.jit with NKI_ARTIFACTS_DIR",
    ),
}
"""Compile routes of ``scripts/compile_worker.py`` by API, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An argument or a result of a kernel: name, dtype (as numpy or ml_dtypes call it) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def plain(self) -> dict[str, object]:
        """Return the record as data for JSON."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Everything on which the compiler's output depends. ``environment`` has variables that are set for the
    compiler.
    """

    kernel: Kernel
    arguments: tuple[Tensor, ...]
    target: str
    """Chip to compile for: ``trn1``, ``trn2`` or ``trn3``."""
    compiler_version: str
    api_version: str
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """The compiler's options, in order, such as ``--disable-dge`` and ``--auto-cast=none``."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.kernel.entry:
            raise ValueError("the kernel has no entry: set it to the name of the kernel's function")
        if not self.target or not self.compiler_version:
            raise ValueError("the request has no target or no compiler version: set both")

    @property
    def key(self) -> str:
        """Return a hash (hex) of all parts of the request on which the compiled kernel depends. The kernel's file
        name and origin are left out.
        """
        kernel = self.kernel
        parts = {
            "text": kernel.text,
            "closure": dict(kernel.closure),
            "entry": kernel.entry,
            "api": kernel.api,
            "grid": kernel.grid,
            "lnc": kernel.lnc,
            "arguments": [one.plain() for one in self.arguments],
            "scalars": {name: [type(value).__name__, repr(value)] for name, value in self.scalars.items()},
            "target": self.target,
            "compiler": self.compiler_version,
            "api_version": self.api_version,
            "flags": self.flags,
            "environment": dict(self.environment),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Return the compiler options with the target added, and for the legacy compiler the LNC."""
        lnc = (f"--logical-nc-config={self.kernel.lnc}",) if self.kernel.api == "nki_legacy" else ()
        return (f"--target={self.target}", *lnc, *self.flags)
