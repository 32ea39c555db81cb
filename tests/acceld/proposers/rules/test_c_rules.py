"""Rules for C: the changed source compiles and gives the same results, after one rule and after several."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from acceld.devices.cpu import rules
from acceld.devices.cpu.rules.reading import CModule
from acceld.errors import RuleRefused
from acceld.nki.source.launches import Launch
from acceld.proposers.rules.proposer import rewrite, suggestions
from acceld.proposers.rules.records import Rule
from acceld.resources import workloads_folder
from tests.acceld.proposers.rules.kernels import places_offered
from tests.properties import one_in

RULES: dict[str, Rule] = {
    rule.name: rule for module in rules.MODULES if (rule := import_module(f"acceld.devices.cpu.rules.{module}").RULE)
}
SMALL: dict[str, tuple[dict[str, int], list[tuple[int, ...]], tuple[int, ...]]] = {
    "matmul_cpu": ({"M": 16, "K": 64, "N": 128}, [(16, 64), (64, 128)], (16, 128)),
    "softmax_cpu": ({"M": 16, "N": 128}, [(16, 128)], (16, 128)),
    "rmsnorm_cpu": ({"M": 16, "N": 128}, [(16, 128), (128,)], (16, 128)),
    "layernorm_gelu_cpu": ({"M": 16, "N": 128}, [(16, 128), (128,), (128,)], (16, 128)),
    "conv2d_maxpool_cpu": (
        {"C": 4, "O": 8, "H": 18, "W": 18, "HC": 16, "WC": 16, "HP": 8, "WP": 8},
        [(4, 18, 18), (8, 4, 3, 3), (8,)],
        (8, 8, 8),
    ),
}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def _source(name: str) -> str:
    """Return a workload's baseline with small extents."""
    text = (workloads_folder() / "cpu" / name / "kernel.c").read_text(encoding="utf-8")
    for symbol, value in SMALL[name][0].items():
        text = re.sub(rf"#define {symbol} \d+", f"#define {symbol} {value}", text)
    return text


def _outputs(name: str, sources: list[str], folder: Path) -> list[np.ndarray]:
    """Return each source's outputs on the same inputs; all are compiled at once, each in a file of its own."""
    files = []
    for number, source in enumerate(sources):
        path = folder / f"{name}{number}.c"
        path.write_text(re.sub(r"\bkernel\(", f"kernel{number}(", source), encoding="utf-8")
        files.append(str(path))
    flags = ["-O0", "-fopenmp-simd", "-fno-math-errno", "-shared", "-fPIC", "-w"]
    library = folder / f"{name}.so"
    subprocess.run(["gcc", *flags, *files, "-o", str(library), "-lm"], check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    _, shapes, shape = SMALL[name]
    rng = np.random.default_rng(7)
    inputs = [rng.normal(0.5, 1, one).astype(np.float32) for one in shapes]
    found = []
    for number in range(len(sources)):
        out = np.full(shape, np.nan, np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
        getattr(loaded, f"kernel{number}")(*pointers)
        found.append(out)
    return found


@needs_gcc
@pytest.mark.parametrize("name", SMALL)
def test_every_rewrite_of_a_baseline_computes_the_same(name: str, tmp_path: Path) -> None:
    source = _source(name)
    changed = {"as it is": source}
    for one in suggestions(source, Launch("c")):
        for variant in one.variants[:1]:
            changed[f"{one.rule} line {one.line} {variant.name}"] = rewrite(source, Launch("c"), one, variant)
    assert len(changed) > 5
    want, *others = _outputs(name, list(changed.values()), tmp_path)
    for title, got in zip(list(changed)[1:], others, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, err_msg=title)


@needs_gcc
@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_rewrites_one_after_another_compute_the_same(name: str, tmp_path: Path) -> None:
    rng = random.Random(11)
    sources, reported = [_source(name)], [""]
    for _ in range(5):
        text, steps = _source(name), []
        for _ in range(4):
            found = suggestions(text, Launch("c"))
            if not found:
                break
            one = rng.choice(found)
            variant = rng.choice(one.variants)
            text = rewrite(text, Launch("c"), one, variant)
            steps.append(f"{one.rule} line {one.line} {variant.name}")
        sources.append(text)
        reported.append(" > ".join(steps))
    want, *others = _outputs(name, sources, tmp_path)
    for title, got in zip(reported[1:], others, strict=True):
        np.testing.assert_allclose(got, want, rtol=5e-5, atol=5e-6, err_msg=title)


def _sites(rule: str, body: str) -> list[str]:
    text = f"#define N 64\nvoid kernel(const float *a, float *out)\n{{\n{body}\n}}\n"
    return [site.plan for site in places_offered(RULES[rule], CModule(text))]


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("vectorize", "for (int i = 1; i < N; i++) { out[i] = out[i - 1] + a[i]; }"),
        ("vectorize", "for (int i = 0; i < N; i++) { out[0] = a[i]; }"),
        ("vectorize", "float s = 0; for (int i = 0; i < N; i++) { s = a[i] - s; out[i] = s; }"),
        ("vectorize", "float s = 0; for (int i = 0; i < N; i++) { s += a[i]; out[i] = s; }"),
        ("vectorize", "float *p = out; for (int i = 0; i < N; i++) { *p = a[i]; p++; }"),
        ("vectorize", "for (int i = 0; i < N; i++) { out[i] = surprise(a[i]); }"),
        ("vectorize", "for (int i = 0; i < N; i++) { if (a[i] > 0) break; out[i] = 1.0f; }"),
        ("vectorize", "for (int i = 0; i < N; i++) { int i = 4; out[i] = a[i]; }"),
        ("vectorize", "for (int i = 0; i < N; i++) { out[i] = (typeof(a[i]))a[i]; }"),
        ("vectorize", "for (int i = 0; i < N; i++) { out[i] = a[i] }"),
        ("vectorize", "for (int i = 0; i < N; i++ { out[i] = a[i]; }"),
        ("unroll_jam", "for (int i = 1; i < 33; i++) for (int j = 0; j < 2; j++) { out[i] += out[i - 1]; }"),
        ("unroll_jam", "for (int i = 0; i < 8; i++) for (int j = 0; j < i; j++) { out[i] += a[j]; }"),
        (
            "c_interchange",
            "for (int i = 1; i < 9; i++) for (int j = 1; j < 8; j++) { out[i * 8 + j] = out[(i - 1) * 8 + j + 1]; }",
        ),
        ("c_interchange", "for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) { out[i + j] = a[i]; }"),
        ("c_interchange", "for (int i = 0; i < 8; i++) for (int j = 0; j < i; j++) { out[i * 8 + j] = a[j]; }"),
        (
            "expand_reduction",
            "for (int j = 0; j < N; j++) { float s = 0; for (int k = 0; k < N; k++) s += out[k * N + j]; out[j] = s; }",
        ),
        ("partial_sums", "float s = 0; for (int i = 0; i < n; i++) { s += a[i]; } out[0] = s;"),
        ("partial_sums", "int s = 0; for (int i = 0; i < 128; i++) { s += a[i]; } out[0] = s;"),
        ("hoist_division", "float s = a[0]; for (int i = 0; i < N; i++) { out[i] = a[i] / s; s = s + 1; }"),
        ("hoist_division", "int s = 3; for (int i = 0; i < N; i++) { out[i] = a[i] / s; }"),
    ],
)
def test_a_rule_leaves_alone_what_it_can_not_prove(rule: str, body: str) -> None:
    assert _sites(rule, body) == []


def test_maxima_become_comparisons_that_vectors_have() -> None:
    text = "void kernel(const float *a, float *out)\n{\n    float m = a[0];\n    for (int i = 0; i < 64; i++) {\n        m = fmaxf(m, a[i]);\n    }\n    out[0] = m;\n}\n"
    rule = RULES["vectorize"]
    (site,) = places_offered(rule, CModule(text))
    changed = rule.apply(CModule(text), site, site.variants[0])
    assert "#pragma omp simd reduction(max:m)" in changed
    assert "m = a[i] > m ? a[i] : m;" in changed


def test_a_source_with_conditional_compilation_is_refused_with_its_line() -> None:
    with pytest.raises(RuleRefused, match="line 2: conditional compilation"):
        CModule("#define N 4\n#ifdef FAST\n#endif\n")


def test_what_is_not_read_does_not_hide_the_rest() -> None:
    text = (
        "static const float table[2] = {1.0f, 2.0f};\nvoid kernel(const float *a, float *out)\n{\n    int i = 0;\n"
        "    while (i < 4) { out[i] = table[0]; i++; }\n    for (int j = 4; j < 64; j++) {\n        out[j] = a[j];\n    }\n}\n"
    )
    assert [loop.var for loop in CModule(text).loops] == ["j"]


@needs_gcc
def test_inline_functions_are_within_a_few_units_in_the_last_place(tmp_path: Path) -> None:
    text = "#include <math.h>\nvoid kernel(const float *x, float *e, float *t)\n{\n    for (int i = 0; i < 200001; i++) {\n        e[i] = expf(x[i]);\n        t[i] = tanhf(x[i]);\n    }\n}\n"
    rule = RULES["inline_exp"]
    (site,) = places_offered(rule, CModule(text))
    path = tmp_path / "exp.c"
    path.write_text(rule.apply(CModule(text), site, site.variants[0]), encoding="utf-8")
    library = tmp_path / "exp.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(path), "-o", str(library), "-lm"], check=True)
    x = np.concatenate([np.linspace(-80, 80, 100001), np.linspace(-2, 2, 100000)]).astype(np.float32)
    e, t = np.empty_like(x), np.empty_like(x)
    ctypes.CDLL(str(library)).kernel(*(ctypes.c_void_p(array.ctypes.data) for array in (x, e, t)))
    wide = x.astype(np.float64)
    assert np.abs(e / np.exp(wide) - 1).max() < 2.5e-7
    nonzero = wide != 0
    assert np.abs(t[nonzero] / np.tanh(wide[nonzero]) - 1).max() < 6e-7


def test_words_outside_of_ascii_move_nothing() -> None:
    body = "    for (int i = 0; i < 64; i++) { /* naïve, 1 µs 🙂 */ out[i] = a[i]; }\n"
    text = f"/* größer */\nvoid kernel(const float *a, float *out)\n{{\n{body}}}\n"
    rule = RULES["unroll"]
    (site,) = places_offered(rule, CModule(text))
    assert rule.apply(CModule(text), site, site.variants[0]) == text.replace(body, f"    #pragma GCC unroll 4\n{body}")


def test_very_deep_nesting_is_refused() -> None:
    deep = "(" * 20_000 + "1" + ")" * 20_000
    with pytest.raises(RuleRefused, match="deep"):
        CModule(f"void kernel(float *out)\n{{\n    out[0] = {deep};\n}}\n")


def test_a_quotient_that_c_rounds_the_other_way_is_no_constant() -> None:
    kernel = CModule(
        "#define N 3\nvoid kernel(float *out)\n{\n    for (int i = -N / 2; i < N / 2; i++) out[i] = 0;\n}\n"
    )
    (loop,) = kernel.loops
    assert kernel.constant(loop.first) is None and kernel.constant(loop.bound) == 1
