"""The state of the processor that a worker sets before each call of a kernel."""

from __future__ import annotations

import ctypes
import platform

import pytest

from acceld.evaluate.hosted.worker import exception_flags


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="numbers of the flags on x86_64")
def test_exception_flags_are_random_and_rounding_stays() -> None:
    library, stir = ctypes.CDLL(None), exception_flags()
    rounding, seen = library.fegetround(), set()
    for _ in range(60):
        stir()
        seen.add(library.fetestexcept(0x3D))
        assert library.fegetround() == rounding
    library.feclearexcept(0x3F)
    assert len(seen) > 5 and all(any(flags & bit for flags in seen) for bit in (1, 4, 8, 16))
