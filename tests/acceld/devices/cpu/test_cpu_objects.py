"""A kernel in C is refused for its compiled object or its preprocessed source."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from acceld.devices.cpu.driver import FLAGS
from acceld.devices.cpu.objects import complaint, misdirected, static_bytes

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


@needs_gcc
@pytest.mark.parametrize(
    "text",
    [
        "void kernel(float *x) { ((void (*)(void))(long)x[0])(); }",
        "void kernel(float *x) { void *at[] = {&&a, &&b}; goto *at[(int)x[0]]; a: x[0] = 1; b: x[1] = 2; }",
        "static float f(float x) { return x; }\nstatic float (*volatile g)(float) = f;\nvoid kernel(float *x) { x[0] = g(x[0]); }",
    ],
)
def test_a_jump_to_a_computed_address_is_refused(tmp_path: Path, text: str) -> None:
    assert _found(tmp_path, text)[0] == "jump"


@needs_gcc
def test_a_switch_a_comparison_for_qsort_and_inlined_functions_are_no_computed_jumps(tmp_path: Path) -> None:
    (tmp_path / "kernel.c").write_text(HONEST, "utf-8")
    for words in (["-c", "kernel.c", "-o", "kernel.o"], ["kernel.o", "-o", "kernel.so", "-lm"]):
        subprocess.run(["gcc", *FLAGS, *words], cwd=tmp_path, check=True, capture_output=True)
    assert complaint(tmp_path / "kernel.o", "/usr/bin:/bin") == ("", "")
    assert misdirected(tmp_path / "kernel.so", "/usr/bin:/bin") == ("", "")


@needs_gcc
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors' instructions have one length")
def test_a_call_into_the_middle_of_an_instruction_is_refused(tmp_path: Path) -> None:
    text = ".globl kernel\nkernel:\n call 1f+1\n ret\n1: movl $0xc3310f, %eax\n ret\n.section .note.GNU-stack\n"
    (tmp_path / "kernel.s").write_text(text, "utf-8")
    subprocess.run(["gcc", "-shared", "kernel.s", "-o", "kernel.so"], cwd=tmp_path, check=True)
    assert misdirected(tmp_path / "kernel.so", "/usr/bin:/bin")[0] == "jump"


HONEST = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
static int by_size(const void *a, const void *b) { return (*(float *)a > *(float *)b) - (*(float *)a < *(float *)b); }
static inline float applied(float (*f)(float), float x) { return f(x); }
static float half(float x) { return x / 2; }
void kernel(float *x, int kind)
{
    switch (kind) {
    case 0: x[0] = expf(x[1]); break;
    case 1: x[0] = tanhf(x[1]); break;
    case 2: memcpy(x, x + 64, 4 * (size_t)x[2]); break;
    case 3: x[0] = erff(x[1]); break;
    case 4: qsort(x, 64, sizeof(float), by_size); break;
    case 5: x[0] = sqrtf(x[3]); break;
    case 6: x[0] = applied(half, x[3]); break;
    default: for (int i = 0; i < 64; i++) x[i] = applied(half, x[i]);
    }
}
"""


@needs_gcc
@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ("", 0),
        ("static const float one[4] = {1};", 0),
        ("static float last[4];", 16),
        ("__attribute__((common)) float last[4];", 16),
        ("float first = 1; __attribute__((common)) float last[4];", 20),
    ],
)
def test_memory_that_the_linker_adds_counts_as_kept(tmp_path: Path, declared: str, kept: int) -> None:
    use = "x[0] += last[1]; last[1] = x[1];" if "last" in declared else "x[0] = 1;"
    assert _found(tmp_path, f"{declared}\nvoid kernel(float *x) {{ {use} }}\n") == ("", "")
    assert static_bytes(tmp_path / "kernel.o") == kept


@needs_gcc
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86_64")
@pytest.mark.parametrize("line", ["std", "popf", "tpause %eax", "umwait %eax", "mwaitx", "rdpru"])
def test_instructions_that_change_a_callers_flags_or_wait_for_a_time_are_refused(tmp_path: Path, line: str) -> None:
    rule, message = _found(tmp_path, f'void kernel(float *x) {{ x[0] = 1; __asm__ volatile("{line}"); }}\n')
    assert (rule, message) == ("instruction", f"a kernel may not use {line.split()[0]}")
