"""A kernel in C is refused for its compiled object or its preprocessed source."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from acceld.devices.cpu.objects import complaint

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


def _found(folder: Path, text: str) -> tuple[str, str]:
    (folder / "kernel.c").write_text(text, "utf-8")
    command = ["gcc", "-O2", "-fPIC", "-save-temps", "-c", "kernel.c", "-o", "kernel.o"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return complaint(folder / "kernel.o", "/usr/bin:/bin")


@needs_gcc
@pytest.mark.parametrize(
    "declared",
    [
        "extern char *secure_getenv(const char *);",
        'extern long other(void) __asm("gettid");',
        "#define DECLARE(name) extern long name(void)\nDECLARE(getppid);",
        '#line 1 "math.h"\nextern long ftime(void *);',
    ],
)
def test_a_declaration_of_what_a_kernel_may_not_call_is_refused_though_nothing_calls_it(
    tmp_path: Path, declared: str
) -> None:
    rule, message = _found(tmp_path, f"{declared}\nvoid kernel(float *x) {{ x[0] = 1; }}\n")
    assert rule == "external" and "may not declare" in message


@needs_gcc
def test_the_headers_own_declarations_and_a_kernels_own_functions_are_no_reason(tmp_path: Path) -> None:
    text = (
        "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\nextern float own(float);\nextern double cbrt(double);\n"
        "float own(float x)\n{\n    return sqrtf(x);\n}\nvoid kernel(float *x) { x[0] = own(x[1]) + cbrt(x[2]); }\n"
    )
    assert _found(tmp_path, text) == ("", "")
