"""The constructs that each version of the package nki refuses, and the remedies that its messages name."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from acceld.chips import NKI_VERSIONS
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.current import lifetimes
from acceld.nki.frontend.current.language import namespace
from acceld.nki.frontend.current.names import COMPILER
from acceld.nki.frontend.current.reading import absent_names, file_needs, names_needed
from acceld.nki.frontend.current.surface import surface
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.frontend.versions import RULE
from acceld.nki.ir.program import Program
from acceld.targets import nearest_nki, nki_version
from acceld.workloads import ArraySpec, find_workloads, workload

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
KERNEL = """
{above}
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
{body}
    nisa.dma_copy(dst=out, src=t)
    return out
"""
REGISTER = "r = nisa.register_alloc(3)"
COUNT = "n = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)\nnisa.memset(n, 3)"
TRN3 = ("priority", "square")
"""Constructs that exist on trn3 only."""


def kernel(body: str = "pass", above: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return HEAD + KERNEL.format(above=above, body=lines)


def traced(source: str, version: str | None, name: str = "") -> Program:
    return trace(
        source,
        [TensorSpec((128, 64), "float32")],
        api="nki",
        chip="trn3" if name in TRN3 else "trn2",
        entry="kernel",
        options=TraceOptions(nki=version),
    )


BROKEN = {
    "topk": ("nisa.topk(t, t, t, 64)", "0.3 0.4 0.5"),
    "fori_loop": ("def one(i):\n    nisa.tensor_copy(t, t)\nnl.fori_loop(0, 2, one)", "0.3 0.4 0.5"),
    "scalar_load": (f"{COUNT}\nnisa.scalar_load(n)", "0.3 0.4 0.5 0.6"),
    "get_nc_sub_version": ("nisa.get_nc_sub_version()", "0.3 0.4"),
    "dynamic_range": ("for i in nl.dynamic_range(2):\n    nisa.tensor_copy(t, t)", "0.7"),
    "while": (f"{REGISTER}\nwhile r:\n    nisa.register_move(r, 0)", "0.7"),
    "register": (f"{REGISTER}\nq = r + 1", "0.3 0.4 0.5 0.6"),
    "index": (f"{REGISTER}\nfor i in nl.dynamic_range(0, r):\n    q = i * 2", "0.3 0.4 0.5 0.6 0.7"),
    "priority": ("nisa.dma_copy(t, x, priority=0)", "0.3"),
    "permute": ("q = t.reshape((128, 8, 8)).permute((0, 2, 1))", "0.3 0.4"),
    "broadcast": ("q = t[:, 0:1].broadcast(1, 64)", "0.3 0.4"),
    "fold": ("nisa.tensor_scalar_reduce(t, t, nl.add, 1.0, nl.add)", "0.3 0.4 0.5"),
    "lambda": ("f = lambda v: v", "0.3 0.4 0.5 0.6"),
    "comprehension": ("sizes = [n for n in range(3)]", "0.3 0.4 0.5 0.6"),
    "pair": ("for i, n in enumerate((1, 2)):\n    pass", "0.3 0.4 0.5 0.6"),
    "one name": ("for pair in ((1, 2), (3, 4)):\n    i, n = pair", ""),
    "try": ("try:\n    pass\nexcept ValueError:\n    pass", "0.3 0.4 0.5 0.6"),
    "raise": ("if x.shape[0] > 128:\n    raise ValueError", "0.3 0.4 0.5 0.6"),
    "del": ("n = 3\ndel n", "0.3 0.4 0.5 0.6"),
    "import": ("import math", "0.3 0.4 0.5 0.6"),
    "match": ("match 3:\n    case 3:\n        pass", "0.3 0.4 0.5 0.6"),
    "class": ("class A:\n    pass", "0.3 0.4 0.5 0.6"),
    "star": ("n = max(*(1, 2))", "0.3 0.4 0.5 0.6"),
    "keywords": ("n = dict(**{'a': 1})", "0.3 0.4 0.5 0.6"),
    "else": ("for i in range(2):\n    pass\nelse:\n    pass", "0.3 0.4 0.5 0.6"),
    "format": ("name = f'{3:04d}'", "0.3 0.4 0.5 0.6"),
    "dict": ("d = {1: 2}", "0.3 0.4 0.5 0.6"),
    "entry": ("d = {}\nd[1] = 2", "0.3 0.4 0.5 0.6"),
    "entry of a loop": ("d = dict()\nfor m in nl.affine_range(2):\n    d[2 * m] = m", "0.3 0.4 0.5 0.6"),
    "entry by text": ("d = {}\nfor m in ('a', 'b'):\n    d[m] = d[f'{m}{1}'] = 1\nd['a%d' % 1] = 2", ""),
    "set": ("n = {1, 2}", "0.3 0.4 0.5 0.6"),
    "walrus": ("n = 3 if (m := 2) else 1", "0.3 0.4 0.5 0.6"),
    "with": ("with open('/dev/null') as file:\n    pass", "0.3 0.4 0.5 0.6"),
    "order": ("with nl.no_reorder():\n    nisa.tensor_copy(t, t)", ""),
    "banks": ("n = nl.tile_size.psum_num_banks", "0.3 0.4"),
    "bytes": ("n = nl.tile_size.sbuf_fmax_bytes", "0.3"),
    "limits": ("n = nl.tile_size.pmax + nl.tile_size.psum_fmax + nl.tile_size.total_available_sbuf_size", ""),
    "square": ("nisa.tensor_scalar(t, t, nl.square, 0)", "0.3"),
    "depends": ("nisa.tensor_copy(t, t).depends_on(nisa.tensor_copy(t, t))", "0.3 0.4 0.5"),
    "offset": (
        f"{REGISTER}\nfor i in nl.dynamic_range(r):\n    nisa.dma_copy(t[:, 0:8], x.ap([[64, 128], [1, 8]], scalar_offset=i, indirect_dim=1))",
        "0.3 0.7",
    ),
    "named": (
        (
            "s = nl.ndarray((128, 64), nl.float32, nl.private_hbm)\nnisa.dma_copy(s, t)\n"
            "nki.collectives.all_reduce([s], [s], nki.collectives.ReplicaGroup([[0, 1]]), nl.add, name='sum')"
        ),
        "0.3 0.4",
    ),
    "list": ("d = [1, 2]\nfor m in range(2):\n    d[m] = m", ""),
    "inner": ("def inner(v):\n    return v\nn = inner(3)", ""),
    "plain": ("assert x.shape[0] == 128\nsizes = [1, 2]\nname = f'{3}'\nn = 3 if sizes else 4", ""),
}


@pytest.mark.parametrize("version", NKI_VERSIONS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_construct_is_refused_by_the_versions_without_it(name: str, version: str) -> None:
    body, broken = BROKEN[name]
    if version not in broken.split():
        assert traced(kernel(body), version, name).outputs
        return
    with pytest.raises(LegalityError) as caught:
        traced(kernel(body), version, name)
    assert caught.value.rule == RULE and f"NKI {version} refuses it" in caught.value.message
    assert caught.value.hint and caught.value.line > 10


@pytest.mark.parametrize("name", BROKEN)
def test_a_trace_without_a_version_takes_what_any_version_has(name: str) -> None:
    assert traced(kernel(BROKEN[name][0]), None, name).outputs


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        (kernel(above="import neuronxcc"), "0.4 0.5 0.6 0.7"),
        (kernel().replace("@nki.jit", '@nki.jit(platform_target="trn2")'), "0.4 0.5 0.6 0.7"),
        (kernel().replace("@nki.jit", '@nki.jit(mode="trace")'), "0.3 0.4 0.5 0.6 0.7"),
        (kernel("nisa.tensor_copy(t[:, 0:1], t[:, -1])"), "0.3 0.4 0.5 0.6"),
        (kernel("nisa.tensor_copy(t[:, 0:8], t[:, 8:64].ap([[64, 128], [1, 8]]))"), "0.3 0.4"),
    ],
)
def test_what_only_documentation_refuses_is_a_note(source: str, broken: str) -> None:
    for version in NKI_VERSIONS:
        notes = [one.text for one in traced(source, version).notices]
        assert any(f"NKI {version} refuses it" in text for text in notes) == (version in broken.split())


@pytest.mark.parametrize("version", [NKI_VERSIONS[0], NKI_VERSIONS[-1]])
@pytest.mark.parametrize("name", sorted(name for name, one in find_workloads().items() if "nki" in one.baselines))
def test_a_baseline_is_legal_in_every_version(name: str, version: str) -> None:
    found = workload(name)
    program = trace(
        found.baselines["nki"].read_text(),
        [TensorSpec(a.shape, a.dtype) if isinstance(a, ArraySpec) else a for a in found.kernel_arguments()],
        api="nki",
        chip="trn2" if not found.chips or "trn2" in found.chips else found.chips[0],
        entry=found.entry or "kernel",
        grid=found.grid,
        options=TraceOptions(nki=version),
    )
    assert program.outputs


def test_a_remedy_for_operands_of_two_shapes_is_one_that_every_version_has() -> None:
    for body in ("nisa.dma_copy(t, x[0:1, :])", "nisa.tensor_tensor(t, t, t[:, 0:1], nl.add)"):
        with pytest.raises(LegalityError) as caught:
            traced(kernel(body), "0.3")
        assert "a step of 0" in caught.value.hint


def test_a_note_on_the_decorator_is_given_once_if_the_kernel_is_traced_twice() -> None:
    across = "nisa.dma_copy(t[:, 0:32], x.ap(pattern=[[32, 128], [1, 32]], offset=0))"
    notes = traced(kernel(across).replace("@nki.jit", '@nki.jit(mode="trace")'), "0.6").notices
    assert [one.text[:9] for one in notes] == ["nki.jit(m"]


def test_continue_in_a_run_time_loop_is_a_note() -> None:
    body = f"{REGISTER}\nfor i in nl.dynamic_range(r):\n    nisa.tensor_copy(t, t)\n    continue"
    assert any("continue in a run-time loop" in one.text for one in traced(kernel(body), "0.6").notices)


def test_an_offset_from_which_pages_count_differently_is_a_note() -> None:
    for said, view in (
        (True, "t[:, 8:64].ap([[64, 128], [1, 8]], offset=16)"),
        (False, "t[:, 8:64].ap([[64, 128], [1, 8]])"),
    ):
        notes = [one.text for one in traced(kernel(f"nisa.tensor_copy(t[:, 0:8], {view})"), "0.6").notices]
        assert any("AWS's pages disagree" in text for text in notes) == said
    whole = kernel("nisa.tensor_copy(t[:, 0:8], t.ap([[64, 128], [1, 8]], offset=16))")
    assert not traced(whole, "0.6").notices


def test_python_outside_of_what_the_kernel_reaches_is_free() -> None:
    above = (
        "SIZES = [n for n in range(3)]\n"
        "def driver(*values):\n    try:\n        return [kernel(v) for v in values]\n    finally:\n        pass\n"
        "try:\n    import neuronxcc\nexcept ImportError:\n    pass\n"
    )
    program = traced(kernel(above=above), "0.3")
    assert not [one for one in program.notices if "refuses" in one.text]


def test_a_helper_that_the_kernel_calls_is_read_too() -> None:
    above = "def sizes():\n    return [n for n in range(3)]\n"
    with pytest.raises(LegalityError, match="comprehension") as caught:
        traced(kernel("n = sizes()", above), "0.5")
    assert caught.value.line == 6


@pytest.mark.parametrize(
    ("above", "body", "said"),
    [
        ("class Size(int):\n    pass", "n = Size(3)", "the base int"),
        ("class Size(nl.NKIObject):\n    rows: int", "n = Size(3)", ""),
        ("from enum import Enum\nclass Size(Enum):\n    A = 1", "n = Size.A", ""),
        ("class Size(int):\n    pass", "pass", ""),
        ("import numpy as np\nKIND = np.float32", "nl.ndarray((128, 8), dtype=KIND)", "a numpy dtype"),
        ("import numpy as np\nKIND = nl.float32", "nl.ndarray((128, 8), dtype=KIND)", ""),
    ],
)
def test_objects_of_the_file_that_the_parser_does_not_read_are_refused_where_they_are_used(
    above: str, body: str, said: str
) -> None:
    assert traced(kernel(body, above), "0.7").outputs
    if not said:
        assert traced(kernel(body, above), "0.6").outputs
        return
    with pytest.raises(LegalityError, match=said) as caught:
        traced(kernel(body, above), "0.6")
    assert caught.value.rule == RULE


def test_only_the_kernel_inside_of_a_factory_is_read() -> None:
    source = HEAD + (
        "def make(*sizes):\n    total = sum(n for n in sizes)\n    @nki.jit\n    def inner(x):\n        n = {line}\n"
        "        return x\n    return inner\nkernel = make(1, 2)\n"
    )
    assert file_needs(ast.parse(source.format(line="3")), "kernel") == []
    (need,) = file_needs(ast.parse(source.format(line="lambda v: v")), "kernel")
    assert need.what.startswith("lambda")


def test_an_imported_name_is_refused_once_it_is_used() -> None:
    above = "from nki.isa import topk"
    assert traced(kernel(above=above), "0.5").outputs
    with pytest.raises(LegalityError, match=r"nki\.isa\.topk: NKI 0\.5 refuses it, 0\.6 is the first"):
        traced(kernel("topk(t, t, t, 8)", above), "0.5")


def test_the_names_of_a_file_are_read_through_its_own_aliases() -> None:
    source = (
        "import nki.isa as hw\nfrom nki import language\nfrom nki.isa import topk as best\n"
        "hw.scalar_load(1)\nlanguage.dynamic_range(2)\nbest(1)\nhw.dma_copy(1, 2, priority=3)\nother.scalar_load(1)\n"
    )
    found = [(need.line, need.what) for need in names_needed(ast.parse(source))]
    assert found == [(4, "nisa.scalar_load"), (5, "nl.dynamic_range"), (6, "best"), (7, "priority of hw.dma_copy")]


def test_names_and_options_that_no_version_has_are_found_with_a_remedy() -> None:
    source = (
        "import nki\nimport nki.isa as hw\nimport nki.language as nl\n@nki.jit\ndef kernel(x):\n"
        "    hw.tensor_tensor(x, x, x, op=nl.divide)\n    nl.mgrid\n    nl.topk\n    hw.tensor_cpy(x, x)\n"
        "    hw.dma_copy(dst=x, src=x, dst_rmw_op=nl.add)\n    hw.tensor_copy_dynamic_src(x, x)\n"
        "    nl.load(x, dtype=nl.float32)\n    hw.dma_copy(x, x, priority=1)\n    return nl.affine_range(3)\n"
        "def unused(x):\n    nl.mod\n"
    )
    found = absent_names(ast.parse(source), "kernel")
    assert [(need.line, need.what) for need in found] == [
        (6, "nl.divide"), (7, "nl.mgrid"), (8, "nl.topk"), (9, "nisa.tensor_cpy"), (10, "dst_rmw_op of hw.dma_copy"),
    ]  # fmt: skip
    remedies = [need.life.instead for need in found]
    for remedy, part in zip(
        remedies, ("nisa.reciprocal", "nl.ds", "nisa.topk", "nisa.tensor_copy", "src"), strict=True
    ):
        assert part in remedy
    assert not any(need.life.covers(version) for need in found for version in NKI_VERSIONS)


def test_a_name_that_no_version_has_is_a_note_where_only_a_trace_knows_whether_it_is_reached() -> None:
    source = (
        "import nki\nimport nki.isa as hw\nimport nki.language as nl\n@nki.jit\ndef kernel(x, wide):\n    if wide:\n"
        "        nl.bool\n        hw.tensor_copy(x, x, mask=None)\n    nl.mgrid\n    return x\n"
    )
    found = absent_names(ast.parse(source), "kernel")
    assert [(need.line, need.life.certain) for need in found] == [(7, False), (8, False), (9, True)]


def test_python_on_which_the_sources_disagree_is_a_note() -> None:
    above = (
        "class Plain:\n    rows = 3\nclass Sized(nl.NKIObject):\n    @property\n    def rows(self):\n        return 3"
    )
    source = kernel("n = Plain.rows + Sized().rows", above).replace("def kernel(x)", "def kernel(x, *, sizes=(1, 2))")
    for version, said in (("0.6", 3), ("0.7", 0)):
        notes = [one.text for one in traced(source, version).notices]
        assert sum(f"NKI {version} refuses it" in text for text in notes) == said
    arguments: list[Any] = [TensorSpec((128, 64), "float32"), [1, 2]]
    options = TraceOptions(nki="0.6")
    source = kernel().replace("def kernel(x)", "def kernel(x, sizes)")
    given = trace(source, arguments, api="nki", chip="trn2", entry="kernel", options=options)
    assert any("a list as the kernel's argument 'sizes'" in one.text for one in given.notices)


def test_a_later_limit_is_found_without_a_trace() -> None:
    source = "import nki.language as nl\nn = nl.tile_size.psum_num_banks + nl.tile_size.pmax\n"
    assert [(need.line, need.what, need.life.since) for need in names_needed(ast.parse(source))] == [
        (2, "nl.tile_size.psum_num_banks", "0.5")
    ]


def test_a_misspelt_decorator_is_found_with_the_right_one() -> None:
    source = "import nki\n@nki.jitt\ndef kernel(x):\n    return x\n@nki.jit_(debug=True)\ndef other(x):\n    return x\n"
    found = absent_names(ast.parse(source), "kernel")
    assert [(need.line, need.what, need.life.instead) for need in found] == [
        (2, "nki.jitt", "did you mean nki.jit?"),
        (5, "nki.jit_", "did you mean nki.jit?"),
    ]
    assert not absent_names(ast.parse("import nki\n@nki.jit\n@nki.simulate\ndef kernel(x):\n    return x\n"), "kernel")


def test_an_import_of_the_former_package_in_a_kernels_body_is_named_in_all_later_versions() -> None:
    source = "import nki\n@nki.jit\ndef kernel(x):\n    import neuronxcc.nki.language\n    return x\n"
    found = [need for need in file_needs(ast.parse(source), "kernel") if need.what == "import neuronxcc"]
    assert [(need.line, need.life.covers("0.3"), need.life.covers("0.7")) for need in found] == [(4, True, False)]


def test_every_name_of_the_tables_is_one_of_the_api_and_has_a_remedy() -> None:
    known = {name for names in surface().values() for name in names} | namespace().keys() | COMPILER.keys()
    known |= {"tensor_copy_dynamic_src", "tensor_copy_dynamic_dst"}  # ended before the versions that pages list
    later = {name for version, names in lifetimes.SINCE.items() if version > "0.3" for name in names.split()}
    assert {*later, *lifetimes.UNTIL} <= known
    assert {*lifetimes.UNTIL, *lifetimes.INSTEAD} <= known


def test_the_version_is_the_named_one_or_the_nearest_known_one() -> None:
    assert [nki_version(one) for one in NKI_VERSIONS] == list(NKI_VERSIONS)
    assert [nearest_nki(one) for one in ("0.2", "0.3.1", "0.6", "0.7.0", "0.9", "1.0")] == [
        "0.3", "0.3", "0.6", "0.7", "0.7", "0.7",
    ]  # fmt: skip
