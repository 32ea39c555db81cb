"""Facts in prompts are those of the simulator, and the mistakes that prompts warn of are mistakes."""

from __future__ import annotations

import ast
import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from acceld.chips import API_CHIPS, chip_spec
from acceld.devices.cpu.policy import refused_c
from acceld.devices.cpu.signature import prototype
from acceld.devices.cuda.blank_torch import BlankTorch, tensor_of
from acceld.devices.cuda.policy import refused_triton
from acceld.evaluate.hosted.driver import BuildRefused
from acceld.nki import knowledge
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.current.reading import file_needs
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.operations import OPS
from acceld.nki.ir.program import Engine, Program
from acceld.nki.timing.cost import CostModel
from acceld.nki.timing.parameters import default_params
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from acceld.proposers.llm.knowledge import calls_of, knowledge_of
from acceld.proposers.llm.prompts import APIS, PromptLibrary
from acceld.resources import prompts_folder
from acceld.workloads import workload

HEADS = {
    "nki_legacy": "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\nimport neuronxcc.nki.isa as nisa\n\n",
    "nki": "import nki\nimport nki.language as nl\nimport nki.isa as nisa\n\n",
}
PAIR = re.compile(r"Wrong \((\w+)\):\n```\w+\n(.*?)```\nRight:\n```\w+\n(.*?)```", re.DOTALL)


def pairs(*apis: str) -> Iterator[tuple[str, str, str, str]]:
    library = PromptLibrary([prompts_folder()])
    for api in apis:
        found = PAIR.findall(library.mistakes(api))
        assert len(found) == 4 and library.mistakes(api).count("Wrong") == 4
        yield from ((api, *one) for one in found)


def traced(api: str, body: str) -> Program:
    return trace(HEADS[api] + body, [TensorSpec((128, 2048), "float32")], api=api, chip=API_CHIPS[api][0])


@pytest.mark.parametrize(("api", "rule", "wrong", "right"), pairs("nki_legacy", "nki"))
def test_each_mistake_in_nki_is_refused_by_its_rule_and_its_cure_passes(
    api: str, rule: str, wrong: str, right: str
) -> None:
    try:
        refused = {finding.rule for finding in verify(traced(api, wrong))}
    except KernelFailure as failure:
        refused = {failure.rule}
    assert rule in refused
    assert not verify(traced(api, right))


@pytest.mark.parametrize(("api", "kind", "wrong", "right"), pairs("c"))
def test_each_mistake_in_c_fails_as_it_says_and_its_cure_computes(
    tmp_path: Path, api: str, kind: str, wrong: str, right: str
) -> None:
    assert outcome(tmp_path, wrong) == kind
    assert outcome(tmp_path, right) == "passed"


def outcome(folder: Path, text: str) -> str:
    """Evaluate a kernel that is to double 1003 numbers."""
    if refused_c(text) is not None:
        return "rejected"
    vector = {"name": "x", "shape": [1003], "dtype": "float32"}
    declared = prototype([vector], [{**vector, "name": "y"}], "kernel")
    (folder / "prototype.h").write_text(f"#include <stdint.h>\n{declared}\n")
    (folder / "kernel.c").write_text(text)
    made = folder / f"kernel{len(list(folder.glob('*.so')))}.so"
    command = ["gcc", "-O3", "-shared", "-fPIC", "-include", "prototype.h", "kernel.c", "-o", str(made)]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        return "compile_error"
    x, y = np.arange(1003, dtype=np.float32), np.full(1003, 7.0, np.float32)
    ctypes.CDLL(str(made)).kernel(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    return "passed" if np.array_equal(y, 2 * x) else "incorrect_numerical"


@pytest.mark.parametrize(("api", "rule", "wrong", "right"), pairs("triton"))
def test_each_mistake_in_triton_is_refused_by_its_rule_and_its_cure_is_not(
    api: str, rule: str, wrong: str, right: str
) -> None:
    found = refused_triton(wrong)
    assert (found.rule if found else host_rule(wrong)) == rule
    assert refused_triton(right) is None and host_rule(right) == ""


def host_rule(text: str) -> str:
    """Return the refusal of the replacement for torch; empty if the host code launches."""

    class Launched:
        def __getitem__(self, grid: tuple[int, ...]) -> Launched:
            return self

        def __call__(self, *arguments: object, **constants: object) -> None: ...

    class Triton:
        cdiv = staticmethod(lambda n, of: -(-n // of))

    if "def run" not in text:
        return ""
    names: dict[str, object] = {"torch": BlankTorch(132, 90), "triton": Triton, "double": Launched()}
    exec(text, names)  # noqa: S102  # a block of our own documentation
    try:
        names["run"](tensor_of(0, (4096,), "float32"))  # type: ignore[operator]
    except BuildRefused as refusal:
        return refusal.rule
    return ""


ARGUMENTS = {
    "activation": "tile", "reciprocal": "tile", "tensor_scalar": "tile", "tensor_tensor": "tile, tile",
    "tensor_reduce": "tile, axis=1", "copy": "tile", "select": "tile, tile, tile", "transpose": "tile[0:128, 0:32]",
}  # fmt: skip


@pytest.mark.parametrize("api", API_CHIPS)
def test_a_function_of_the_language_becomes_the_operation_and_runs_on_an_engine_that_prompts_name(api: str) -> None:
    load = "tile = nl.load(x[0:128, 0:64])"
    if api == "nki":
        load = "tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x[0:128, 0:64])"
    tried = 0
    for call in sorted(knowledge.every_call(api, API_CHIPS[api][0])):
        module, _, name = call.partition(".")
        operation = knowledge.operation_of(call)
        if module != "nl" or operation not in ARGUMENTS or name.startswith(("bitwise", "invert", "left", "right")):
            continue
        kept = ", keepdims=True" if api == "nki" and name in ("sum", "prod", "max", "min", "mean") else ""
        body = f"@nki.jit\ndef kernel(x):\n    {load}\n    {call}({ARGUMENTS[operation]}{kept})\n    return x\n"
        made = [one for one, _ in traced(api, body).walk() if one.op not in ("dma_copy", "memset")]
        emitted = {one.op for one in made}
        assert operation in emitted, call
        named = OPS[operation].engines
        assert all(one.engine in named or one.engine.value == "unknown" for one in made if one.op == operation), call
        tried += 1
    assert tried > 45


@pytest.mark.parametrize("api", API_CHIPS)
def test_every_documented_call_that_is_traced_is_listed_with_its_arguments(api: str) -> None:
    chip = API_CHIPS[api][0]
    lines = knowledge.call_lines(knowledge.every_call(api, chip), api, chip)
    assert len(lines) > 120 and not any(" at 0x" in line or "<" in line for line in lines if "rmw" not in line)
    named = [line for line in lines if line.startswith("nisa.")]
    assert sum("[" in line for line in named) >= len(named) - 14


def test_a_prompt_shows_the_calls_of_the_kernel_and_those_that_could_stand_for_them() -> None:
    text = workload("silu").baselines["nki_legacy"].read_text()
    used = knowledge.used_calls(text, "nki_legacy")
    assert {"nl.load", "nisa.activation"} <= used and "nisa.max8" not in used
    near = knowledge.neighbours(used, "nki_legacy", "trn1")
    assert {"nisa.scalar_tensor_tensor", "nisa.activation_reduce"} <= near and "nisa.nc_matmul" not in near
    assert knowledge.used_calls("from nki.isa import dma_copy as move\nmove(1)\n", "nki") == {"nisa.dma_copy"}
    assert knowledge.used_calls("def (", "nki") == frozenset()
    assert knowledge.used_calls("import nki.language as nl\nnl.add(1, op=nl.exp)\n", "nki") == {"nl.add"}


@pytest.mark.parametrize(("call", "instead"), [("nc_transpose", "dma_transpose"), ("tensor_reduce", "bn_stats")])
def test_a_prompt_shows_calls_that_do_the_same_work_in_another_way(call: str, instead: str) -> None:
    near = knowledge.neighbours({f"nisa.{call}"}, "nki", "trn2")
    assert {f"nisa.{instead}", "nisa.memset"} <= near


def test_prompts_say_what_the_cost_model_says_of_transposing_transfers_and_16_bit_tiles() -> None:
    params = default_params("nki", "trn2")

    def busy_us(statement: str, dtype: str = "nl.float32") -> float:
        tile = f"nl.ndarray((128, 128), dtype={dtype}, buffer=nl.sbuf)"
        filled = "".join(f"    {name} = {tile}\n    nisa.memset(dst={name}, value=1.0)\n" for name in "abc")
        program = traced("nki", f"@nki.jit\ndef kernel(x):\n{filled}    {statement}\n    return x\n")
        last = [one for one, _ in program.walk()][-1]
        engine = Engine.DMA if "dma" in statement else Engine.VECTOR
        return CostModel.of(program, params).cost(last, engine, last.dsts[0].shape).busy_us

    moved, turned = (busy_us(f"nisa.{call}(dst=a, src=x[0:128, 0:128])") for call in ("dma_copy", "dma_transpose"))
    assert turned == pytest.approx(2 * moved, rel=0.1) and any(
        "in twice the time" in line for line in knowledge.time_lines("nki", "trn2")
    )
    each_us = CostModel.of(traced("nki", "@nki.jit\ndef kernel(x):\n    return x\n"), params).instruction_us
    for call, share in (
        ("tensor_scalar(dst=a, data=b, op0=nl.add, operand0=1.0, engine=nisa.engine.vector)", 4),
        ("tensor_tensor(dst=a, data1=b, data2=c, op=nl.add, engine=nisa.engine.vector)", 2),
    ):
        assert busy_us(f"nisa.{call}", "nl.bfloat16") == pytest.approx(each_us(Engine.VECTOR, 128 / share), rel=0.01)


@pytest.mark.parametrize("api", APIS)
def test_levels_of_facts_are_none_some_and_all(api: str) -> None:
    chip = {"triton": "h100", "c": "host", "numpy": "host"}.get(api) or API_CHIPS[api][0]
    source = HEADS.get(api, "") + "y = nl.exp(x)\n"
    none, some, every = (knowledge_of(api, chip, "MISTAKES", level) for level in ("none", "calls", "full"))
    calls = [calls_of(api, chip, source, level) for level in ("none", "calls", "full")]
    assert none == "" and some.endswith("MISTAKES") and some.startswith("The chip:\n")
    assert calls[0] == "" and (calls[2] == "") == (api in API_CHIPS or api == "numpy")
    if api in API_CHIPS:
        assert len(some) < len(every) and len(calls[1]) < len(every) - len(some)
    assert calls[1] or api == "numpy", "models are told the calls of every language with calls of its own"


@pytest.mark.parametrize("api", API_CHIPS)
def test_calls_are_explained_in_the_names_of_their_own_arguments(api: str) -> None:
    chip = API_CHIPS[api][0]
    for line in knowledge.call_lines(knowledge.every_call(api, chip), api, chip):
        call, _, rest = line.partition("(")
        if not call.startswith("nisa.") or "]: " not in rest:
            continue
        signature, _, meaning = rest.partition(")  [")
        own = {part.partition("=")[0].strip() for part in signature.split(",")}
        meaning = meaning.partition("]: ")[2]
        operation = knowledge.operation_of(call)
        assert operation is not None
        one = OPS[operation]
        foreign = {word.name for word in (*one.dsts, *one.srcs)} | one.attrs
        used = set(re.findall(r"[A-Za-z_]\w*", meaning)) & (foreign - own)
        assert used <= PLAIN, (call, used)


PLAIN = {"accumulate", "transpose", "reverse", "pattern", "cmp", "values", "register"}
"""Names of operands and attributes that are plain words here, such as ``eight values``."""


@pytest.mark.parametrize("api", API_CHIPS)
def test_values_and_times_are_those_of_the_tables(api: str) -> None:
    chip = API_CHIPS[api][0]
    lines = knowledge.value_lines({"nisa.tensor_copy", "nisa.activation", "nisa.memset"}, api)
    engine = next(line for line in lines if line.startswith("engine: "))
    assert "nisa.engine.vector" in engine and "nisa.engine.gpsimd" in engine
    assert any(line.startswith("reduce_cmd: ") and "nisa.reduce_cmd.reset_reduce" in line for line in lines)
    assert not any(line.startswith("perf_mode") for line in lines), "none of these calls takes it"
    spec, params = chip_spec(chip), default_params(api, chip)
    times = "\n".join(knowledge.time_lines(api, chip))
    slope_ns = 1.0 / spec.vector_ghz
    assert f"{slope_ns:.2f} ns an element" in times
    long_us = CostModel(spec, params, ()).copy_us(4096)
    fixed_ns = float(re.search(r"vector (\d+) ns \+", times)[1])  # type: ignore[index]
    assert fixed_ns + 4096 * slope_ns == pytest.approx(1000 * long_us, rel=0.01)


def test_a_matrix_product_of_the_language_transposes_as_its_line_says() -> None:
    assert "transpose" in next(line for line in knowledge.call_lines({"nl.matmul"}, "nki_legacy", "trn1"))
    body = (
        "@nki.jit\ndef kernel(x):\n    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    a = nl.load(x[:, 0:128])\n    b = nl.load(x[:, 128:256])\n"
        "    nl.store(out, nl.matmul(a, b{}))\n    return out\n"
    )
    plain, turned = (traced("nki_legacy", body.format(more)) for more in ("", ", transpose_x=True"))

    def transposes(program: Program) -> int:
        return sum(one.op == "transpose" or bool(one.attr("transpose")) for one, _ in program.walk())

    assert (transposes(plain), transposes(turned)) == (1, 0)


PRODUCTS = """@nki.jit
def kernel(x):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
    most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    kept = []
    for turn in range(8):
        product = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(4):
            part = nl.ds(512 * i, 512)
            nisa.nc_matmul(dst=product[:, part], stationary=tile[0:ROWS, 0:128], moving=tile[0:ROWS, part], accumulate=FLAG)
        kept.append(product)
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=kept[-1], axis=1)
    nisa.dma_copy(dst=out, src=most)
    return out
"""


def test_what_prompts_say_of_products_and_psum_is_what_the_simulator_does() -> None:
    """A tile of PSUM spans banks, ``accumulate`` is true or false, lists keep tiles, few rows run at half the rate."""

    def made(rows: int, flag: str) -> Program:
        text = HEADS["nki"] + PRODUCTS.replace("ROWS", str(rows)).replace("FLAG", flag)
        return trace(text, [TensorSpec((128, 2048), "float32")], api="nki", chip="trn2")

    full, half = made(128, "False"), made(64, "False")
    assert not verify(full) and not verify(half)
    with pytest.raises(KernelFailure) as refused:
        made(128, "'no'")
    assert refused.value.rule == "operand_type"
    (line,) = knowledge.call_lines({"nisa.nc_matmul"}, "nki", "trn2")
    assert "accumulate True adds" in line and "'yes'" not in line
    busy = []
    for program in (full, half):
        found = timeline(program).binding
        assert found is not None and found.engine == "tensor"
        busy.append(found.busy_us)
    assert busy[1] > 1.6 * busy[0]
    times = "\n".join(knowledge.time_lines("nki", "trn2"))
    assert "half its rate while less than 55 %" in times
    assert "half its rate" not in "\n".join(knowledge.time_lines("nki_legacy", "trn1"))


@pytest.mark.parametrize(
    ("statement", "rule", "said"),
    [
        (
            "nisa.activation(dst=tile, op=nl.exp, data=tile, engine=nisa.engine.gpsimd)",
            "chip",
            "name=None) [scalar; SBUF or PSUM]",
        ),
        (
            "nisa.activation(dst=tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=tile[:, 0:1])",
            "reduce_cmd",
            "with reduce_cmd=nisa.reduce_cmd.reset_reduce the values are also",
        ),
        (
            "nisa.tensor_copy(dst=tile, src=product, engine=nisa.engine.gpsimd)",
            "address_space",
            "gpsimd and DMA do not reach it",
        ),
        (
            "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.maximum, operand0=0.0, engine=nisa.engine.scalar)",
            "engine",
            "tensor_scalar on scalar: multiply, add, or multiply then add;",
        ),
        (
            "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.power, operand0=2.0, engine=nisa.engine.vector)",
            "engine",
            "power: gpsimd alone",
        ),
    ],
)
def test_what_the_simulator_refuses_prompts_do_not_offer(statement: str, rule: str, said: str) -> None:
    body = (
        "@nki.jit\ndef kernel(x):\n    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    nisa.dma_copy(dst=tile, src=x[:, 0:512])\n"
        "    nisa.nc_matmul(dst=product, stationary=tile[:, 0:128], moving=tile)\n"
        f"    {statement}\n    nisa.dma_copy(dst=out, src=tile)\n    return out\n"
    )
    text = HEADS["nki"] + body
    try:
        program = trace(text, [TensorSpec((128, 2048), "float32")], api="nki", chip="trn2")
        refused = {finding.rule for finding in verify(program)}
    except KernelFailure as failure:
        refused = {failure.rule}
    assert rule in refused
    told = f"{knowledge_of('nki', 'trn2', '', 'calls')}\n{calls_of('nki', 'trn2', text, 'calls')}"
    assert said in " ".join(told.split())


@pytest.mark.parametrize("api", API_CHIPS)
def test_the_rate_of_dma_in_prompts_is_that_of_long_rows_in_the_simulator(api: str) -> None:
    for chip in API_CHIPS[api]:
        engines, row = chip_spec(chip).dma_engines, 1 << 20
        took_us = CostModel(chip_spec(chip), default_params(api, chip), ()).transfer_us(engines, row)
        (said,) = re.findall(r"together (\d+) GB/s", "\n".join(knowledge.chip_lines(api, chip)))
        assert float(said) == pytest.approx(engines * row / took_us / 1000, rel=0.01)


def test_names_that_op_takes_are_listed_for_the_calls_of_a_prompt_alone() -> None:
    lines = knowledge.name_lines({"nisa.nc_matmul", "nisa.tensor_copy"}, "nki", "trn2")
    assert lines == []
    assert [line.partition(":")[0] for line in knowledge.name_lines({"nisa.tensor_reduce"}, "nki", "trn2")] == [
        "op of tensor_reduce"
    ]


@pytest.mark.parametrize("api", API_CHIPS)
def test_a_shortest_time_is_given_where_it_differs_from_the_formula(api: str) -> None:
    times = "\n".join(knowledge.time_lines(api, API_CHIPS[api][0]))
    for engine, fixed, least in re.findall(r"(\w+) (\d+) ns \+ [\d.]+ ns an element, at least (\d+) ns", times):
        assert int(least) > int(fixed), engine


def test_python_that_prompts_call_refused_is_refused_by_versions_that_parse_kernels() -> None:
    (said,) = [line for line in knowledge.chip_lines("nki", "trn2") if "are refused" in line]
    body = "def kernel(x):\n    a = [i for i in range(2)]\n    b = lambda: 1\n    try:\n        pass\n    finally:\n        pass\n    class C:\n        pass\n"
    needs = " ".join(need.what for need in file_needs(ast.parse(body), "kernel"))
    for word in ("comprehension", "lambda", "try", "class"):
        assert word in needs and word in said
    assert not any("are refused" in line for line in knowledge.chip_lines("nki_legacy", "trn1"))
