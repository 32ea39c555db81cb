"""The proposer without models, and properties of all rules."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import acceld.proposers.rules as rules_package
from acceld.daemon.build import problem_of
from acceld.model import READING, Candidate, Kernel, Plan
from acceld.nki.source.launches import Launch
from acceld.proposers.interface import AttemptRequest, PlanRequest
from acceld.proposers.rules import MODULES, all_rules, rule_named
from acceld.proposers.rules.proposer import RulesProposer, moves, readings, refusals, rewrite, suggestions
from acceld.workloads import ArraySpec, Workload, find_workloads, workload
from tests.acceld.proposers.rules.kernels import legacy

CHANGE_CLASSES = {"loop_order", "tile_width", "fusion", "engine", "spill", "dma", "mixed"}
FOLDER = Path(rules_package.__file__).parent / "nki"


def shapes(one: Workload) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(a.shape if isinstance(a, ArraySpec) else None for a in one.kernel_arguments())


def request(one: Workload, index: int = 0, earlier: tuple[Plan, ...] = ()) -> PlanRequest:
    problem = problem_of(one, "trn1", "nki_legacy")
    kernel = Kernel(one.baselines["nki_legacy"].read_text(), "nki_legacy")
    return PlanRequest(problem, 1, 1, Candidate(1, 0, kernel, None, id=7), 0, index, 0, earlier=earlier)


def test_there_are_at_least_eight_rules_and_each_says_why() -> None:
    rules = all_rules()
    assert len({rule.name for rule in rules}) == len(rules) > len(MODULES) >= 8
    for rule in rules:
        assert len(rule.reason) > 60 and len(rule.source) > 20, f"{rule.name}: say more"
        assert rule.apis <= {"nki_legacy", "nki", "triton", "c"} and rule.change_class in CHANGE_CLASSES
        assert rule_named(rule.name) is rule
    assert sum("nki" in rule.apis for rule in rules) >= 5


def test_every_module_with_a_rule_is_listed() -> None:
    holding = {path.stem for path in FOLDER.glob("*.py") if "\nRULE = " in path.read_text()}
    assert holding == set(MODULES), "list each module with a rule in MODULES of acceld/proposers/rules/__init__.py"


def test_no_rule_knows_a_workload() -> None:
    """Function names that are also workload names (silu, matmul) are the instruction set's."""
    names = set(find_workloads()) - {"silu", "matmul"}
    sizes = {str(value) for one in find_workloads().values() for value in one.values.values() if value > 2048}
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        assert "acceld.workloads" not in text and "read_text" not in text and "open(" not in text
        for word in names | (sizes - {"4096", "8192"}):
            assert not re.search(rf"\b{word}\b", text), f"{path.name} mentions {word}"


def test_names_in_a_kernel_do_not_matter() -> None:
    one = workload("bmm_softmax")
    source = one.baselines["nki_legacy"].read_text()
    renamed = source
    for number, name in enumerate(("logits", "weight", "row_max", "part_sum", "lhs_tile", "product")):
        renamed = re.sub(rf"\b{name}\b", f"v{number}", renamed)
    before, after = (suggestions(text, Launch("nki_legacy", shapes(one))) for text in (source, renamed))
    assert [(s.rule, s.line) for s in before] == [(s.rule, s.line) for s in after] != []


def test_importing_the_package_loads_no_parser() -> None:
    code = "import sys, acceld.proposers.rules; print('acceld.nki.source' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_most_baselines_have_suggestions_and_all_can_be_read() -> None:
    with_some = 0
    for one in find_workloads().values():
        if one.family == "nkibench":
            found = suggestions(one.baselines["nki_legacy"].read_text(), Launch("nki_legacy", shapes(one)))
            benefits = [suggestion.benefit for suggestion in found]
            assert benefits == sorted(benefits, reverse=True)
            with_some += any(suggestion.rule != "place_engine" for suggestion in found)
    assert with_some >= 10


async def test_plans_are_sites_best_first_and_always_the_same() -> None:
    proposer = RulesProposer()
    one = workload("silu")
    first, again = await proposer.plan(request(one)), await proposer.plan(request(one))
    assert first == again and first is not None
    assert first.rule == "composite_activation" and first.parent == 7 and "Why:" in first.text
    second = await proposer.plan(request(one, 1))
    assert second is not None and (second.rule, second.line) != (first.rule, first.line)
    assert await proposer.plan(request(one, 50)) is None


async def test_plans_go_on_where_earlier_ones_end() -> None:
    proposer = RulesProposer()
    one = workload("silu")
    first, second = await proposer.plan(request(one)), await proposer.plan(request(one, 1))
    assert first is not None and second is not None
    following = await proposer.plan(request(one, 0, (first,)))
    assert following is not None and following.rule == second.rule and following.index == 0


async def test_attempts_are_the_variants_of_a_plan() -> None:
    proposer = RulesProposer()
    ask = request(workload("lora"))
    plan = await proposer.plan(ask)
    assert plan is not None and plan.rule == "fuse_nests"
    plan = replace(plan, id=3)
    attempts = [await proposer.attempt(AttemptRequest(ask.problem, plan, ask.parent, k, 0)) for k in range(4)]
    assert attempts[0] is not None and attempts[2] is not None and attempts[3] is None
    assert attempts[0].plan == 3 and attempts[0].text and attempts[0].text != ask.parent.kernel.text


async def test_after_the_sites_come_places_where_a_rule_refuses_and_says_why() -> None:
    proposer = RulesProposer()
    ask = request(workload("rmsnorm_matmul"))
    plans = [await proposer.plan(replace(ask, index=number)) for number in range(40)]
    last = [plan for plan in plans if plan is not None][-1]
    attempt = await proposer.attempt(AttemptRequest(ask.problem, last, ask.parent, 0, 0))
    assert attempt is not None and attempt.text is None
    assert attempt.reason == last.data["precondition"] and re.match(r"line \d+\b", attempt.reason)
    assert "Safe because" not in last.text and f"What prevents it: {attempt.reason}" in last.text


def test_a_refusal_is_no_suggestion() -> None:
    for name in ("bmm", "lora", "gqa_full"):
        one = workload(name)
        source = one.baselines["nki_legacy"].read_text()
        places = {(s.rule, s.line, s.key) for s in suggestions(source, Launch("nki_legacy", shapes(one)))}
        refused = [(s.rule, s.line, s.key) for s in refusals(source, Launch("nki_legacy", shapes(one)))]
        assert refused and not places & set(refused)


async def test_a_plan_that_does_not_fit_its_kernel_gives_no_code_and_the_reason() -> None:
    proposer = RulesProposer()
    ask = request(workload("silu"))
    plan = await proposer.plan(ask)
    assert plan is not None
    other = Candidate(1, 0, Kernel(legacy("x", "    return x\n"), "nki_legacy"), None, id=8)
    attempt = await proposer.attempt(AttemptRequest(ask.problem, plan, other, 0, 0))
    assert attempt is not None and attempt.text is None and "does not apply there" in attempt.reason


async def test_rules_neither_repair_nor_teach() -> None:
    proposer = RulesProposer()
    assert not proposer.abilities.repairs and not proposer.abilities.teaches


LAUNCHED = """
import nki
import nki.isa as nisa
import nki.language as nl


def scaled(x, w, n, biased=False):
    out = nl.ndarray((n, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    right = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=right, src=w)
    bias = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    if biased:
        nisa.dma_copy(dst=bias, src=x[0:128, 0:512])
    else:
        nisa.memset(dst=bias, value=1.0)
    for i in nl.affine_range(n // 128):
        left = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=x[i * 128:(i + 1) * 128, 0:512])
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=right, moving=left)
        copied = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copied, src=product)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=done, data1=copied, data2=bias, op=nl.add)
        nisa.dma_copy(dst=out[i * 128:(i + 1) * 128, 0:512], src=done)
    return out


launched = nki.jit(platform_target="trn2")(scaled)
"""
LAUNCHED_FACTS = ((512, 512), (128, 128), 512)


def test_a_kernel_that_the_file_passes_to_a_launcher_is_read() -> None:
    for entry in ("", "launched", "scaled"):
        found = suggestions(LAUNCHED, Launch("nki", LAUNCHED_FACTS, ("float32", "float32", ""), entry))
        assert "consume_psum" in {site.rule for site in found}, entry


def test_a_kernel_below_a_condition_of_the_file_is_read() -> None:
    below = textwrap.indent(LAUNCHED[LAUNCHED.index("def scaled") : LAUNCHED.index("launched =")], "    ")
    source = f"try:\n    import nki\n    import nki.isa as nisa\n    import nki.language as nl\nexcept ImportError:\n    nki = None\n\nif nki is not None:\n    @nki.jit\n{below}"
    (site,) = (one for one in suggestions(source, Launch("nki", LAUNCHED_FACTS)) if one.rule == "consume_psum")
    assert "copied" not in rewrite(source, Launch("nki", LAUNCHED_FACTS), site, site.variants[0])


def test_a_whole_number_among_the_arguments_is_known() -> None:
    loops = [readings(LAUNCHED, Launch("nki", (*LAUNCHED_FACTS[:2], n)))[0].loops[0].trips for n in (512, None)]
    assert loops == [4, None]


def test_a_rewrite_that_needs_no_decision_keeps_the_branches() -> None:
    kernels = readings(LAUNCHED, Launch("nki", LAUNCHED_FACTS))
    assert ["    if biased:\n" in one.source for one in kernels] == [True, False]
    (site,) = (one for one in suggestions(LAUNCHED, Launch("nki", LAUNCHED_FACTS)) if one.rule == "consume_psum")
    changed = rewrite(LAUNCHED, Launch("nki", LAUNCHED_FACTS), site, site.variants[0])
    assert "    if biased:\n" in changed and "copied" not in changed
    moved = next(move.apply() for move in moves(LAUNCHED, Launch("nki", LAUNCHED_FACTS)) if move.rule == site.rule)
    assert moved is not None and "    if biased:\n" in moved


async def test_a_kernel_that_rules_can_not_read_is_refused_with_the_reason() -> None:
    asked = request(workload("silu"))
    method = "import nki\n\nclass Kernels:\n    @nki.jit\n    def silu(x):\n        return x\n"
    parent = replace(asked.parent, kernel=Kernel(method, "nki", "Kernels.silu"))
    asked = replace(asked, parent=parent)
    rules = RulesProposer()
    plan = await rules.plan(asked)
    assert plan is not None and plan.rule == READING
    attempt = await rules.attempt(AttemptRequest(asked.problem, replace(plan, id=3), parent, 0, 0))
    assert attempt is not None and attempt.text is None and "Kernels.silu is not" in attempt.reason
    assert await rules.plan(replace(asked, earlier=(plan,))) is None
