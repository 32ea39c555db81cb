"""List the modules that the zygote imports before it forks a tracer, because a jailed tracer has no files to import
from.
"""

from __future__ import annotations

import re

from acceld.model import Kernel

ALWAYS = (
    "abc ast base64 bisect cmath collections.abc contextlib copy ctypes dataclasses datetime dis encodings.idna "
    "encodings.latin_1 encodings.ascii enum functools gc glob hashlib heapq inspect io itertools json linecache "
    "logging math mmap numbers operator os pathlib pickle platform random re resource select shutil signal socket "
    "string struct tempfile textwrap threading time traceback types typing warnings weakref ml_dtypes numpy.linalg "
    "numpy.lib"
).split()
"""Modules that any kernel's file may import, directly or through another module."""
SELDOM = (
    "argparse csv decimal fractions importlib.metadata numpy.fft numpy.ma numpy.polynomial numpy.random "
    "numpy.testing numpy.typing pprint statistics subprocess timeit unittest uuid"
).split()
"""Modules that a kernel's file may import but that take longer to load. Each is imported only if its name occurs in the
kernel's text.
"""
FRONT_ENDS = {"nki_legacy": "acceld.nki.frontend.legacy.frontend", "nki": "acceld.nki.frontend.current.frontend"}
OBSERVING = "acceld.nki.port.facts"


def tracer_modules(kernel: Kernel, *, observe: bool = False) -> list[str]:
    """Return the names of the modules that tracing a kernel may import.

    ``observe`` adds the modules that record the kernel's expressions. A kernel's text can choose only among the modules
    listed here.
    """
    words = {word for text in (kernel.text, *kernel.closure.values()) for word in re.findall(r"\w+", text)}
    seldom = [name for name in SELDOM if name.rpartition(".")[2] in words]
    front_end = [FRONT_ENDS[kernel.api]] if kernel.api in FRONT_ENDS else []
    return [*ALWAYS, *seldom, *front_end, *([OBSERVING] if observe else [])]
