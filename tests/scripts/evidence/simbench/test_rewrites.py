"""Equivalent programs give the same results, and the gate passes them; mistakes it notices."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from acceld.nki.execute.interpreter import execute
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify
from scripts.evidence.simbench.kernels import own
from scripts.evidence.simbench.mutation.gate import FixedSeeds, Preparation, illegal
from scripts.evidence.simbench.mutation.mutants import mutants
from scripts.evidence.simbench.mutation.reduction import reduced
from scripts.evidence.simbench.mutation.rewrites import KINDS, rewrites
from scripts.evidence.simbench.mutation.values import op_swapped
from tests.scripts.evidence.simbench.test_mutants import PROGRAMS, inputs
from tests.scripts.evidence.simbench.test_reduction import shifted_squares


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_equivalent_programs_are_legal_and_give_the_same_results(program: Program) -> None:
    data = inputs(program)
    right = execute(program, data)
    found = list(rewrites(program, seed=3))
    assert found
    for one in found:
        assert program_hash(one.program) != program_hash(program)
        assert verify(one.program) == (), one.name
        for a, b in zip(execute(one.program, data), right, strict=True):
            assert np.allclose(a, b, rtol=1e-5, atol=1e-6), one.name


def test_each_kind_of_rewrite_finds_a_place() -> None:
    programs = (*PROGRAMS.values(), shifted_squares())
    names = {one.name for program in programs for seed in range(3) for one in rewrites(program, seed)}
    assert names == set(KINDS)


def test_the_gate_tells_a_kernel_its_equivalents_and_its_mutants_apart() -> None:
    kernel = own("rmsnorm_matmul")
    small = reduced(kernel.program())
    preparation = Preparation(kernel.workload, small)
    assert preparation.trials[0].name == "own"
    bench = preparation.bench(preparation.trials[0])
    assert not isinstance(bench, str)
    assert bench.result(small.program).same
    for one in rewrites(small.program):
        assert not illegal(one.program)
        assert not bench.result(one.program).complaint, one.name
    kinds = {one.name: one for one in mutants(small.program, seed=1, limit=12)}
    for name in ("instruction_dropped", "op_swapped", "loop_short"):
        wrong = kinds[name].program
        assert illegal(wrong) or bench.result(wrong).complaint, name


def test_seeds_follow_from_the_trial() -> None:
    assert FixedSeeds().seed("own") == FixedSeeds().seed("own") == zlib.crc32(b"own")


@pytest.mark.slow
def test_a_softmax_that_subtracts_the_least_logit_is_noticed() -> None:
    kernel = own("gqa_full")
    small = reduced(kernel.program())
    reduces = {one.line for one, _ in small.program.walk() if one.op == "tensor_reduce" and one.attr("op") == "max"}
    changes = [change for change in (make() for make in op_swapped(small.program)) if change is not None]
    wrong = next(program for line, program in changes if line in reduces)
    preparation = Preparation(kernel.workload, small)
    (trial,) = [one for one in preparation.trials if one.variant == "outliers/k-30"]
    bench = preparation.bench(trial)
    assert not isinstance(bench, str)
    assert bench.result(wrong).complaint
