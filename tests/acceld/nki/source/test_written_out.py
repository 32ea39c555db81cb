"""A traced program is written out as a plain kernel, which makes the same program again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from acceld.errors import RuleRefused
from acceld.model import WRITING_OUT, Candidate, Kernel, Plan
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.program import Affine, Instruction, Loop, Node, Program
from acceld.nki.source.launches import Launch
from acceld.nki.source.written_out import written_out
from acceld.nki.timing.timeline import timeline
from acceld.proposers.interface import AttemptRequest, PlanRequest, Problem, ProblemArgument
from acceld.proposers.rules.proposer import TunedRules, moves
from acceld.proposers.rules.tuner import TimedProgram
from acceld.workloads import ArraySpec, find_workloads, workload
from tests.acceld.proposers.rules.kernels import arrays, run
from tests.properties import one_in

OBJECTS = '''
import dataclasses

import nki
import nki.isa as nisa
import nki.language as nl


@dataclasses.dataclass
class Config:
    rows: int = 128
    columns: int = 512
    negate: bool = False

    def is_scaled(self):
        return not self.negate


class Tiles:
    """Counts through the row blocks of a tensor."""

    def __init__(self, rows, size):
        self.starts = range(0, rows, size)
        self.size = size

    def __iter__(self):
        return iter(self.starts)


def kept(config, dtype):
    return {"x": nl.ndarray((config.rows, config.columns), dtype=dtype, buffer=nl.sbuf), "sum": None}


@nki.jit
def kernel(x, factor=2.0, mode="plain", extra=None):
    config = Config(columns=x.shape[1])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in Tiles(x.shape[0], config.rows):
        tiles = kept(config, x.dtype)
        nisa.dma_copy(dst=tiles["x"], src=x[start : start + config.rows, :])
        if config.is_scaled() and mode == "plain":
            nisa.tensor_scalar(dst=tiles["x"], data=tiles["x"], op0=nl.multiply, operand0=factor)
        sums = []
        for half in (0, 1):
            tiles["sum"] = nl.ndarray((config.rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            part = tiles["x"][:, half * config.columns // 2 : (half + 1) * config.columns // 2]
            nisa.tensor_reduce(dst=tiles["sum"], op=nl.add, data=part, axis=1, keepdims=True)
            sums.append(tiles["sum"])
        nisa.tensor_tensor(dst=sums[0], data1=sums[0], data2=sums[1], op=nl.add)
        nisa.tensor_scalar(dst=tiles["x"], data=tiles["x"], op0=nl.subtract, operand0=sums[0])
        nisa.dma_copy(dst=out[start : start + config.rows, :], src=tiles["x"])
    return out
'''


def canonical(program: Program) -> tuple[Node, ...]:
    """Return the nodes of a program with buffers and loops numbered in the order of their first use, without lines."""
    loops: dict[int, int] = {}
    buffers: dict[int, int] = {}

    def seen(nodes: Sequence[Node]) -> None:
        for one in nodes:
            if isinstance(one, Loop):
                loops.setdefault(one.id, len(loops))
                seen(one.body)
            else:
                for access in one.accesses:
                    buffers.setdefault(access.buffer, len(buffers))

    def plain(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, line=0, name="", body=tuple(map(plain, node.body)))
        return replace(node, line=0, place="")

    def renamed(one: Affine) -> Affine:
        return Affine(one.const, tuple(sorted((loops[loop], by) for loop, by in one.terms)))

    seen(program.body)
    return tuple(
        plain(mapped(node, renamed, loop=loops.__getitem__, buffer=buffers.__getitem__)) for node in program.body
    )


def traced(source: str, *shapes: tuple[int, ...], values: Sequence[float] = ()) -> Program:
    return trace(source, [*(TensorSpec(shape, "float32") for shape in shapes), *values], api="nki", chip="trn2")


def kernels_of_nki() -> list[str]:
    return [
        name
        for name, one in sorted(find_workloads().items())
        if "nki" in one.baselines and "fp8" not in str(one.folder)
    ]


@pytest.mark.parametrize("name", one_in(3, kernels_of_nki()))
def test_a_baseline_written_out_makes_the_same_program(name: str) -> None:
    """The program is the same node by node, or shorter by loops that the trace had unrolled."""
    one = workload(name)
    source = one.baselines["nki"].read_text()
    arguments = [
        TensorSpec(given.shape, given.dtype) if isinstance(given, ArraySpec) else given
        for given in one.kernel_arguments()
    ]
    values = [None if isinstance(given, TensorSpec) else given for given in arguments]
    program = trace(source, arguments, api="nki", chip="trn2", grid=one.grid)
    plain = written_out(program, source, values)
    again = trace(plain, arguments, api="nki", chip="trn2", grid=one.grid)
    shorter = len(list(again.walk())) < len(list(program.walk()))
    assert canonical(again) == canonical(program) or shorter
    assert timeline(again).latency_us == timeline(program).latency_us


def test_objects_helpers_and_branches_become_tiles_loops_and_calls() -> None:
    plain = written_out(traced(OBJECTS, (512, 512)), OBJECTS, [None])
    assert "Config" not in plain and "if " not in plain and "for " in plain
    assert 'assert x.shape == (512, 512), "this kernel was written for x of shape (512, 512)"' in plain
    assert "def kernel(x, factor=2.0, mode='plain', extra=None):" in plain
    (x,) = arrays((512, 512))
    np.testing.assert_array_equal(run(plain, x), run(OBJECTS, x))
    launch = Launch("nki", ((512, 512),), ("float32",))
    assert len(moves(plain, launch)) > len(moves(OBJECTS, launch))


def test_another_argument_than_that_of_the_trace_is_refused_by_the_written_kernel() -> None:
    plain = written_out(traced(OBJECTS, (256, 512), values=[3.0]), OBJECTS, [None, 3.0])
    assert program_hash(traced(plain, (256, 512), values=[3.0]))
    with pytest.raises(Exception, match=re.escape("this kernel was written for factor = 3.0")):
        traced(plain, (256, 512), values=[2.0])
    with pytest.raises(Exception, match=re.escape("this kernel was written for x of shape (256, 512)")):
        traced(plain, (128, 512), values=[3.0])
    with pytest.raises(Exception, match="this kernel was written for x of float32"):
        trace(plain, [TensorSpec((256, 512), "bfloat16"), 3.0], api="nki", chip="trn2")
    assert "x: float32 (256, 512)" in plain


SUM = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[nl.ds(128 * k, 128), 0:128])
        nisa.dma_copy(dst=right, src=b[nl.ds(128 * k, 128), 0:512])
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate={accumulate})
    made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=made, src=total)
    nisa.dma_copy(dst=out, src=made)
    return out
"""


def test_a_first_product_that_overwrites_joins_the_loop_of_those_that_add() -> None:
    source = SUM.format(accumulate="k > 0")
    plain = written_out(traced(source, (512, 128), (512, 512)), source)
    assert plain.count("nisa.nc_matmul") == 1 and "accumulate=k > 0" in plain and "range(4)" in plain
    inputs = arrays((512, 128), (512, 512))
    np.testing.assert_array_equal(run(plain, *inputs), run(source, *inputs))


def test_products_that_overwrite_in_another_iteration_stay_apart() -> None:
    source = SUM.format(accumulate="k != 1")
    inputs = arrays((512, 128), (512, 512))
    source = source.replace("for k in", "nisa.memset(dst=total, value=0.0)\n    for k in")
    plain = written_out(traced(source, (512, 128), (512, 512)), source)
    np.testing.assert_array_equal(run(plain, *inputs), run(source, *inputs))


UNROLLED = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for block in range(4):
        kept = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        for half in range(2):
            tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * block : 128 * block + 128, 512 * half : 512 * half + 512])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0={factor})
            nisa.tensor_scalar(dst=kept[0:128, 512 * half : 512 * half + 512], data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[128 * block : 128 * block + 128, 0:1024], src=kept)
    return out
"""


@pytest.mark.parametrize(
    ("factor", "loops"), [("2.0", 2), ("2.0 + half", 1), ("2.0 + block % 2", 3), ("2.0 + block", 4)]
)
def test_loops_of_python_are_found_again(factor: str, loops: int) -> None:
    source = UNROLLED.format(factor=factor)
    plain = written_out(traced(source, (512, 1024)), source)
    assert plain.count("    for ") == loops
    inputs = arrays((512, 1024))
    np.testing.assert_array_equal(run(plain, *inputs), run(source, *inputs))
    assert timeline(traced(plain, (512, 1024))).latency_us == timeline(traced(source, (512, 1024))).latency_us


def test_an_infinite_number_has_a_spelling() -> None:
    source = UNROLLED.format(factor='float("-inf")')
    plain = written_out(traced(source, (512, 1024)), source)
    assert 'operand0=float("-inf")' in plain
    (x,) = arrays((512, 1024))
    np.testing.assert_array_equal(run(plain, np.abs(x) + 1), run(source, np.abs(x) + 1))


SHARED = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    row = 128 * nl.program_id(0)
    nisa.dma_copy(dst=tile, src=x[nl.ds(row, 128), 0:512])
    nisa.dma_copy(dst=out[nl.ds(row, 128), 0:512], src=tile)
    return out
"""


def test_a_launch_on_two_cores_is_refused() -> None:
    program = trace(SHARED, [TensorSpec((256, 512), "float32")], api="nki", chip="trn2", grid=(2,), lnc=2)
    with pytest.raises(RuleRefused, match="launched on several programs"):
        written_out(program, SHARED)


def test_a_kernel_of_any_number_of_arguments_is_refused() -> None:
    source = OBJECTS.replace('mode="plain", extra=None', 'mode="plain", *extra')
    with pytest.raises(RuleRefused, match="takes any number of arguments: give each argument a name"):
        written_out(traced(source, (128, 512)), source)


HIDDEN = (
    OBJECTS.replace("nisa.tensor_", "isa.tensor_")
    .replace("import nki.isa", "import nki.isa as isa\nimport nki.isa")
    .replace("nisa.dma_copy(dst=", "move(dst=")
    .replace("def kept(", "move = nisa.dma_copy\n\n\ndef kept(")
)
"""The same kernel by other names of the calls, so that no rule finds a place."""

PLAIN_PART = """    decay = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    half = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=half, src=x[0:128, 0:512])
    nisa.activation(dst=decay, op=nl.exp, data=half, scale=-1.0)
    nisa.tensor_scalar(dst=decay, data=decay, op0=nl.add, operand0=1.0)
    nisa.reciprocal(dst=decay, data=decay)
    nisa.tensor_tensor(dst=half, data1=half, data2=decay, op=nl.multiply)
    nisa.dma_copy(dst=out[0:128, 0:512], src=half)
"""


async def timed(kernel: Kernel) -> TimedProgram | None:
    program = trace(kernel.text, [TensorSpec((512, 512), "float32")], api="nki", chip="trn2")
    latency = timeline(program).latency_us
    return None if latency is None else TimedProgram(latency, program_hash(program))


async def plain_form(kernel: Kernel) -> str:
    return written_out(traced(kernel.text, (512, 512)), kernel.text, [None])


def request(source: str) -> PlanRequest:
    problem = Problem("any", "", "", (ProblemArgument("x", (512, 512), "float32"),), "trn2", "nki")
    return PlanRequest(problem, 1, 1, Candidate(1, 0, Kernel(source, "nki"), None, id=7), 0, 0, 0)


async def planned(source: str, write_out: object = plain_form) -> tuple[TunedRules, Plan | None]:
    proposer = TunedRules(timed, limit=12, write_out=write_out)  # type: ignore[arg-type]
    return proposer, await proposer.plan(request(source))


async def test_a_kernel_that_rules_can_not_read_is_tuned_in_its_plain_form() -> None:
    proposer, plan = await planned(OBJECTS)
    assert plan is not None and plan.data["steps"][0] == WRITING_OUT and plan.title.count("write out") == 1
    attempt = await proposer.attempt(AttemptRequest(request(OBJECTS).problem, plan, request(OBJECTS).parent, 0, 0))
    assert attempt is not None and attempt.text is not None and "written out from a trace" in attempt.text
    (x,) = arrays((512, 512))
    np.testing.assert_allclose(run(attempt.text, x), run(OBJECTS, x), rtol=1e-6, atol=1e-5)
    before, after = await timed(Kernel(OBJECTS, "nki")), await timed(Kernel(attempt.text, "nki"))
    assert before is not None and after is not None and after.latency_us < before.latency_us


async def test_a_kernel_that_rules_read_keeps_its_form() -> None:
    source = await plain_form(Kernel(OBJECTS, "nki"))

    async def never(kernel: Kernel) -> str:
        raise AssertionError("the kernel was traced for its plain form")

    _, plan = await planned(source, never)
    assert plan is not None and WRITING_OUT not in plan.data["steps"]


PARTS = """
import nki
import nki.isa as nisa
import nki.language as nl


def scaled(x, out, r0):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[r0 : r0 + 128, 0:512])
    weight = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=x[FIRST : FIRST + 128, 0:512])
    half = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=half, op=nl.exp, data=tile, scale=-1.0)
    nisa.tensor_scalar(dst=half, data=half, op0=nl.add, operand0=1.0)
    nisa.reciprocal(dst=half, data=half)
    nisa.tensor_tensor(dst=half, data1=half, data2=tile, op=nl.multiply)
    made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=made, data1=half, data2=weight, op=nl.multiply)
    nisa.dma_copy(dst=out[r0 : r0 + 128, 0:512], src=made)


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(4):
        scaled(x, out, 128 * t)
    return out
"""
"""Work in a function, which rules read like a kernel. It loads the same weights in each call if FIRST is 0."""


@pytest.mark.parametrize(("first", "more"), [("0", {"hoist_loads"}), ("r0", set())])
async def test_a_kernel_of_functions_is_written_out_if_more_rules_then_apply(first: str, more: set[str]) -> None:
    source, launch = PARTS.replace("FIRST", first), Launch("nki", ((512, 512),), ("float32",))
    plain = await plain_form(Kernel(source, "nki"))
    own, then = ({one.rule for one in moves(text, launch)} for text in (source, plain))
    assert "composite_activation" in own and then - own == more
    _, plan = await planned(source)
    assert plan is not None and (plan.data["steps"][0] == WRITING_OUT) == bool(more)


async def test_a_plan_whose_kernel_can_not_be_written_out_any_more_says_so() -> None:
    _, plan = await planned(OBJECTS)
    assert plan is not None
    late = TunedRules(timed, limit=12)
    attempt = await late.attempt(AttemptRequest(request(OBJECTS).problem, plan, request(OBJECTS).parent, 0, 0))
    assert attempt is not None and attempt.text is None
    assert attempt.reason.startswith("the kernel is not written out: kernels are written out only where")


async def test_a_kernel_of_several_shapes_keeps_its_form_and_its_moves() -> None:
    """The rules find moves in a part of this kernel, whose plain form is illegal at another shape of its workload."""
    source = OBJECTS.replace("    return out", PLAIN_PART + "    return out")

    async def elsewhere(kernel: Kernel) -> TimedProgram | None:
        return None if "written out from a trace" in kernel.text else await timed(kernel)

    proposer = TunedRules(elsewhere, limit=12, write_out=plain_form)
    plan = await proposer.plan(request(source))
    assert plan is not None and WRITING_OUT not in plan.data["steps"]


@pytest.mark.parametrize("why", ["the program has a mask", ""])
async def test_a_kernel_without_places_says_why_it_was_not_written_out(why: str) -> None:
    async def refused(kernel: Kernel) -> str:
        if why:
            raise RuleRefused(why)
        return await plain_form(kernel)

    async def elsewhere(kernel: Kernel) -> TimedProgram | None:
        return None if "written out from a trace" in kernel.text else await timed(kernel)

    proposer = TunedRules(elsewhere, limit=12, write_out=refused)
    plan = await proposer.plan(request(HIDDEN))
    assert plan is not None and plan.rule == "reading"
    attempt = await proposer.attempt(AttemptRequest(request(HIDDEN).problem, plan, request(HIDDEN).parent, 0, 0))
    assert attempt is not None and attempt.text is None
    assert f"It was not written out: {why or 'it would fit one shape'}" in attempt.reason


async def test_a_kernel_that_no_rule_reads_is_refused_at_its_line() -> None:
    proposer = TunedRules(timed, limit=12)
    places, refused = await proposer.findings(request(HIDDEN).parent, request(HIDDEN).problem)
    assert not places and [one.rule for one in refused] == ["reading"]
    line = HIDDEN.splitlines()[refused[0].line - 1]
    assert "config = Config(" in line and "rules do not understand this statement" in refused[0].obstacle


def test_one_instruction_too_many_is_refused() -> None:
    body = "\n".join(f"    nisa.memset(dst=tile[0:128, {n}:{n + 1}], value={n}.5)" for n in range(0, 1300, 2))
    source = f"""
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 1300), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 1300), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
{body}
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    program = traced(source, (128, 1300))
    assert sum(isinstance(one, Instruction) for one, _ in program.walk()) > 300
    with pytest.raises(RuleRefused, match="more than 300 instructions, each loop's body counted once"):
        written_out(program, source)
