"""A candidate in C is refused for its actions, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.devices.cpu.policy import MAX_CHARACTERS, refused_c

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("int x;\nint y = fork();", "library", 2),
        ("int y = fo\\\nrk();\n", "library", 1),
        ("int y = fo\\ \nrk();\n", "library", 1),
        ("/* one\n   two */\n/**/ # /*\n*/include <unistd.h>\n", "include", 3),
        ("%:include <unistd.h>", "include", 1),
        ("#define H <unistd.h>\n#include H\n", "include", 2),
        ("#define J(a, b) a %:%: b\n", "token_pasting", 1),
        ("int y = __builtin_fork();", "library", 1),
        ("__attribute__((__constructor__)) void f(void);", "library", 1),
        ("#pragma redefine_extname f g\n", "library", 1),
        ('_Pragma("redefine_extname f g")\n', "library", 1),
        ('char *s = R"(" /* )"; int y = fork(); /* "*/', "raw_string", 1),
        ("int prctl(int, ...);", "library", 1),
        ("void *p = dlopen(0, 1);", "library", 1),
    ],
)
def test_what_reaches_outside_is_refused_in_every_spelling(text: str, rule: str, line: int) -> None:
    found = refused_c(text)
    assert found is not None and (found.rule, found.line) == (rule, line)


def test_words_in_comments_and_strings_and_honest_names_are_no_reason() -> None:
    text = (
        '// fork \\\n   system\n/* asm */ char *s = "fork"; // don\'t\nfloat timer, start, sem, sigma;\n'
        '_Pragma("omp simd")\n#pragma GCC ivdep\nvoid process_row(float *);\n#error fork\n'
    )
    assert refused_c(text) is None


def test_baselines_and_honest_kernels_are_allowed() -> None:
    listed = [*ROOT.glob("workloads/cpu/*/kernel.c"), *ROOT.glob("tests/adversarial/cpu/H*.c")]
    assert len(listed) > 5
    assert [path.name for path in listed if refused_c(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("unit", ["/*", "\\ ", '"\\"', '_Pragma("', "'", "\x02", "/*\n"])
def test_long_sources_of_one_kind_are_read_through(unit: str) -> None:
    text = unit * (MAX_CHARACTERS // len(unit) - 10) + "\n*/\n'\n"
    found = refused_c(text + 'R"x"')
    assert found is not None and found.rule == "raw_string"
    longer = refused_c(" " * MAX_CHARACTERS + "\n")
    assert longer is not None and longer.rule == "source_size"
