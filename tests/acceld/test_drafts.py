"""Drafts of workload folders load as workloads, and unreadable input is refused with a message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acceld import drafts
from acceld.errors import MOST_NAMED, UsageError, WorkloadError, nearest_of
from acceld.workloads import load_workload, make_inputs
from acceld.workloads.oracle import load_reference, reference_outputs
from acceld.workloads.records import DTYPE_BYTES


def test_arguments_and_scalars_are_read() -> None:
    assert drafts.parse_argument("x=128x512:bfloat16", 0) == drafts.DraftArgument("x", (128, 512), "bfloat16")
    assert drafts.parse_argument("4:float32", 3).name == "arg3"
    assert drafts.parse_scalar("eps=1e-6").value == 1e-6
    assert drafts.parse_scalar("n=4").value == 4 and isinstance(drafts.parse_scalar("n=4").value, int)


@pytest.mark.parametrize("text", ["x=128", "x=axb:float32", "128x512", "=4:float32"])
def test_a_malformed_argument_shows_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="NAME=SHAPE:DTYPE"):
        drafts.parse_argument(text, 0)


def test_a_misspelt_dtype_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="float32"):
        drafts.parse_argument("x=4x4:flaot32", 0)


def test_a_draft_from_a_reference_loads(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(
        "import numpy as np\n"
        "def get_inputs():\n    return [np.ones((4, 8), np.float32), 1e-5, np.ones((8, 2), np.float32)]\n"
        "def forward(x, eps, w):\n    return (x @ w, x + eps)\n"
        "def transform_to_nki_inputs(inputs):\n    x, eps, w = inputs\n    return [x.reshape(2, 2, 8), eps, w]\n",
        encoding="utf-8",
    )
    facts = drafts.reference_facts(tmp_path / "reference.py", [drafts.DraftArgument("w")])
    assert [one.name for one in facts.arguments] == ["w", "eps", "arg2"], "forward names what is not given, each once"
    assert facts.arguments[0].kernel_shape == (2, 2, 8) and facts.arguments[1].value == 1e-5
    assert [output.shape for output in facts.outputs] == [(4, 2), (4, 8)]
    (tmp_path / "kernel_legacy.py").write_text("", encoding="utf-8")
    text = drafts.workload_toml(
        "mine", facts.arguments, facts.outputs, baselines={"nki_legacy": "kernel_legacy.py"}, reference="reference.py",
        entry="f", grid=(2,), lnc=2, mutates=["w"],
    )  # fmt: skip
    (tmp_path / "workload.toml").write_text(text, encoding="utf-8")
    loaded = load_workload(tmp_path)
    assert loaded.arguments[0].kernel_shape == (2, 2, 8) and loaded.arguments[1].value == 1e-5
    assert (loaded.entry, loaded.grid, loaded.lnc, loaded.mutates) == ("f", (2,), 2, ("w",))


INPUTS_BY_NAME = """import numpy as np
def get_inputs():
    return {"w": np.ones((8, 2), np.float32), "x": np.ones((4, 8), np.float32), "n": 3}
def forward(x, w, n):
    return x @ w * n
"""


def test_inputs_may_come_by_name(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(INPUTS_BY_NAME, encoding="utf-8")
    facts = drafts.reference_facts(path)
    assert [(one.name, one.shape, one.value) for one in facts.arguments] == [
        ("x", (4, 8), None), ("w", (8, 2), None), ("n", (), 3)
    ]  # fmt: skip
    drawn = load_reference(path).get_inputs
    assert drawn is not None and [np.shape(one) for one in drawn()] == [(4, 8), (8, 2), ()]
    path.write_text(INPUTS_BY_NAME.replace('"n": 3', '"m": 3'), encoding="utf-8")
    with pytest.raises(WorkloadError, match="get_inputs returned m, which forward does not take"):
        drafts.reference_facts(path)
    other = load_reference(path).get_inputs
    assert other is not None
    with pytest.raises(WorkloadError, match="get_inputs returned m, which forward does not take"):
        other()


def test_the_tolerance_of_a_draft_follows_its_floats(tmp_path: Path) -> None:
    def tolerance(*dtypes: str) -> str:
        arguments = [drafts.DraftArgument(f"x{at}", (4, 8), dtype) for at, dtype in enumerate(dtypes[:-1])]
        output = drafts.DraftOutput("out", (4, 8), dtypes[-1])
        text = drafts.workload_toml("w", arguments, [output], baselines={"nki": "kernel.py"}, reference=None)
        return next(line for line in text.splitlines() if line.startswith("tolerance"))

    assert tolerance("float32", "int32", "float32").startswith("tolerance = 2e-05")
    assert tolerance("float32", "bfloat16").startswith("tolerance = 0.02")
    assert tolerance("bfloat16", "float32").startswith("tolerance = 0.02")


def test_the_work_of_a_reference_that_is_not_traced_counts_only_what_every_kernel_moves() -> None:
    table, pages = drafts.DraftArgument("x", (1000, 8), "float32"), drafts.DraftArgument("i", (4,), "int32")
    outputs = (drafts.DraftOutput("out", (4, 8), "float32"),)
    whole = drafts.compulsory_work(drafts.ReferenceFacts((table,), outputs))
    chosen = drafts.compulsory_work(drafts.ReferenceFacts((table, pages), outputs))
    assert whole["hbm_bytes"] == 4 * (8000 + 32) and chosen["hbm_bytes"] == 4 * (4 + 32)


def test_an_argument_described_unlike_what_get_inputs_makes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        "import numpy as np\ndef get_inputs():\n    return [np.ones((4, 8), np.float32)]\ndef forward(x):\n    return x\n",
        encoding="utf-8",
    )
    assert drafts.reference_facts(path, [drafts.parse_argument("x=4x8:float32", 0)]).arguments[0].shape == (4, 8)
    with pytest.raises(UsageError, match="get_inputs makes x as 4x8:float32, and --arg says 4x8:bfloat16") as refused:
        drafts.reference_facts(path, [drafts.parse_argument("x=4x8:bfloat16", 0)])
    assert refused.value.hint == "change get_inputs, or leave out --arg"


def test_an_output_in_bfloat16_of_inputs_in_bfloat16_is_not_called_a_cast(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text("def forward(x, mask):\n    return x * mask.astype(x.dtype)\n", encoding="utf-8")
    given = [drafts.parse_argument("x=4x8:bfloat16", 0), drafts.parse_argument("mask=4x8:float32", 1)]
    facts = drafts.reference_facts(path, given)
    assert (facts.outputs[0].dtype, facts.narrow) == ("bfloat16", ())


def test_a_reference_that_raises_is_named_with_its_error(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        "def get_inputs():\n    return []\ndef forward():\n    raise ValueError('no luck')\n", encoding="utf-8"
    )
    with pytest.raises(WorkloadError, match=r"ref\.py:4: running it once failed: ValueError: no luck"):
        drafts.reference_facts(path)
    path.write_text("def get_inputs():\n    return []\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="forward"):
        drafts.reference_facts(path)


@pytest.mark.parametrize(
    "returned, what",
    [
        ("{'sum': 1.0}", "forward returned a value of type dict"),
        ("None", "forward returned nothing"),
        ("np.ones((512, 512)).tolist()", "forward returned a list of 512 lists\n"),
        ("(1.0, np.array([1j]))", "out1 of forward is an array of complex128"),
    ],
)
def test_an_output_that_no_kernel_can_return_is_named(tmp_path: Path, returned: str, what: str) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        f"import numpy as np\n\ndef get_inputs():\n    return []\n\ndef forward():\n    return {returned}\n",
        encoding="utf-8",
    )
    with pytest.raises(WorkloadError, match=what):
        drafts.reference_facts(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line, idle_s, what",
    [
        ("while True: pass", 60.0, "running it once takes more than 3 s of processor time"),
        ("import threading; threading.Event().wait()", 2.0, "running it once has used no processor time for 2 s"),
        ("import time; time.sleep(1.5)", 60.0, ""),  # several calls: longer than the deadline by the clock
    ],
)
def test_a_reference_has_a_deadline_of_processor_time_and_may_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, idle_s: float, what: str
) -> None:
    monkeypatch.setattr(drafts, "REFERENCE_DEADLINE_S", 3.0)
    monkeypatch.setattr(drafts, "IDLE_S", idle_s)
    path = tmp_path / "ref.py"
    text = "import numpy as np\ndef get_inputs():\n    return [np.random.rand(4, 4)]\ndef forward(x):\n"
    path.write_text(f"{text}    {line}\n    return x\n", encoding="utf-8")
    if what:
        with pytest.raises(WorkloadError, match=what):
            drafts.reference_facts(path)
    else:
        assert drafts.reference_facts(path).outputs[0].shape == (4, 4)


def test_a_reference_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*nothing\.py") as refused:
        drafts.reference_facts(tmp_path / "nothing.py")
    assert "forward" in refused.value.hint


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        ("float31", "Did you mean 'float32'?"),
        ("q", f"Known: {', '.join(DTYPE_BYTES)}."),
    ],
)
def test_an_unknown_dtype_is_answered_with_the_nearest_or_with_all(dtype: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        drafts.parse_argument(f"x=128:{dtype}", 0)
    assert f"dtype {dtype!r} is unknown" in refused.value.message and refused.value.hint == hint


def test_a_dtype_of_64_bits_is_answered_with_that_of_32() -> None:
    with pytest.raises(UsageError, match="a kernel has no int64") as refused:
        drafts.parse_argument("x=128:int64", 0)
    assert refused.value.hint == "use int32; no engine has 64 bits"


def test_of_very_many_known_names_some_are_listed() -> None:
    hint = nearest_of("q", {f"name{number:02}" for number in range(MOST_NAMED + 2)})
    assert hint.startswith("Known: name00, name01") and hint.endswith("name39 and 2 more.")


def test_a_file_without_forward_is_told_which_of_its_functions_could_be_forward(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text("from math import exp\n\ndef rms(x):\n    return x\n", encoding="utf-8")
    given = [drafts.parse_argument("x=4x8:float32", 0)]
    with pytest.raises(WorkloadError, match="no function forward at its top level\n  add the line: forward = rms"):
        drafts.reference_facts(path, given)
    path.write_text("def rms(x):\n    return x\n\ndef norm(x):\n    return x\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="name it forward; the file defines rms, norm"):
        drafts.reference_facts(path, given)


def test_get_inputs_may_return_the_arrays_alone(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        "import numpy as np\n\ndef get_inputs():\n    return [np.ones((4, 8), np.float32)]\n\n"
        "def forward(x, eps):\n    return x + eps\n",
        encoding="utf-8",
    )
    given = [drafts.parse_argument("x=4x8:float32", 0), drafts.parse_scalar("eps=0.5")]
    facts = drafts.reference_facts(path, given)
    assert [a.value for a in facts.arguments] == [None, 0.5]
    text = drafts.workload_toml("plus", facts.arguments, facts.outputs, baselines={}, reference="ref.py")
    (tmp_path / "workload.toml").write_text(text, encoding="utf-8")
    one, eps = make_inputs(load_workload(tmp_path), seed=1)
    assert one.shape == (4, 8) and eps == 0.5


@pytest.mark.parametrize(("last", "exact"), [(0.0, True), (-1e9, False)])
def test_a_reference_that_loses_its_digits_is_named_and_gets_a_tolerance_that_says_so(
    tmp_path: Path, last: float, exact: bool
) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        "import numpy as np\n\ndef get_inputs():\n    mask = np.zeros((8, 64), np.float32)\n"
        f"    mask[7] = {last}\n    return np.random.standard_normal((8, 64)).astype(np.float32), mask\n\n"
        "def forward(scores, mask):\n    e = np.exp(scores + mask - (scores + mask).max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n",
        encoding="utf-8",
    )
    facts = drafts.reference_facts(path)
    text = drafts.workload_toml(
        "soft", facts.arguments, facts.outputs, baselines={}, reference="ref.py", noise=facts.noise
    )
    (tmp_path / "workload.toml").write_text(text, encoding="utf-8")
    tolerance = load_workload(tmp_path).tolerance
    if exact:
        assert (facts.surprises, tolerance) == ((), 2e-5)
    else:
        assert tolerance >= 2 * facts.noise > 0.01
        (said,) = facts.surprises
        assert f"tolerance = {tolerance:g} was written" in said and "masked as a whole" in said


DRAWN = """import numpy as np

def get_inputs():
    x = np.random.standard_normal((64, 128)).astype(np.float32)
    mask = np.where(np.random.random((64, 128)) < 0.7, 0.0, -1e9).astype(np.float32)
    return x, mask

def forward(x, mask):
    return x + mask
"""


def facts_of(path: Path, text: str) -> drafts.ReferenceFacts:
    path.write_text(text, encoding="utf-8")
    return drafts.reference_facts(path)


@pytest.mark.parametrize(
    ("changed", "line", "fault"),
    [
        ("    return x + mask + np.random.standard_normal(x.shape)", 9, "forward gives other outputs for equal inputs"),
        ("    np.add(x, mask, out=x)\n    return x", 9, "forward changes its argument x"),
        ("    y = x * 2\n    mask[0] = 1\n    return y + mask", 10, "forward changes its argument mask"),
    ],
)
def test_a_reference_without_a_right_answer_is_refused_with_its_line(
    tmp_path: Path, changed: str, line: int, fault: str
) -> None:
    with pytest.raises(WorkloadError, match=rf"ref\.py:{line}: {fault}\n") as refused:
        facts_of(tmp_path / "ref.py", DRAWN.replace("    return x + mask\n", changed + "\n"))
    assert refused.value.hint


def test_a_reference_that_remembers_its_calls_is_refused(tmp_path: Path) -> None:
    text = (
        DRAWN.replace("    return x + mask\n", "    calls.append(1)\n    return x + mask + len(calls)\n")
        + "\ncalls = []\n"
    )
    with pytest.raises(WorkloadError, match="other outputs for equal inputs") as refused:
        facts_of(tmp_path / "ref.py", text)
    assert "keep nothing from one call to the next" in refused.value.hint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (".astype(np.float32)\n    mask", "\n    mask", "get_inputs makes x in float64, and kernels get it in float32"),
        ("    x = np", "    np.random.seed(7)\n    x = np", "get_inputs gives the same arrays in every call"),
        (
            "np.random.standard_normal(",
            "np.random.default_rng().standard_normal(",
            "a generator that acceld can not seed",
        ),
        (
            "    return x + mask",
            "    print('hello')\n    return x + mask",
            "what the reference prints is not shown: hello",
        ),
        ("    return x + mask", "    return 2 * x", "forward does not use mask, so a kernel may ignore it"),
    ],
)
def test_what_an_author_may_not_expect_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert facts_of(tmp_path / "ref.py", DRAWN).surprises == ()
    found = facts_of(tmp_path / "ref.py", DRAWN.replace(old, new))
    assert len(found.surprises) == 1 and said in found.surprises[0]


def test_one_array_alone_is_one_argument(tmp_path: Path) -> None:
    text = "import numpy as np\ndef get_inputs():\n    return np.random.random((4, 8)).astype(np.float32)\ndef forward(x):\n    return x\n"
    assert [one.shape for one in facts_of(tmp_path / "reference.py", text).arguments] == [(4, 8)]
    drawn = load_reference(tmp_path / "reference.py").get_inputs
    assert drawn is not None and [one.shape for one in drawn()] == [(4, 8)]


def drafted(path: Path, facts: drafts.ReferenceFacts) -> str:
    text = drafts.workload_toml(
        "w", facts.arguments, facts.outputs, baselines={}, reference="ref.py", unread=facts.unread,
        work={"matmul_flops": 2 * 64 * 128 * 32, "vector_flops": 7 * 64 * 128, "hbm_bytes": 12 * 64 * 128 + 1},
    )  # fmt: skip
    (path / "workload.toml").write_text(text, encoding="utf-8")
    return text


def test_a_mask_keeps_its_own_values_at_other_shapes(tmp_path: Path) -> None:
    drafted(tmp_path, facts_of(tmp_path / "ref.py", DRAWN))
    text = (tmp_path / "workload.toml").read_text(encoding="utf-8")
    assert 'kind = "values", values = [-1e9, 0], fixed = true' in text
    text = text.replace("[64, 128]", '["M", 128]').replace("tags =", "values = { M = 64 }\ntags =")
    (tmp_path / "workload.toml").write_text(text, encoding="utf-8")
    mask = make_inputs(load_workload(tmp_path, {"M": 32}), seed=3)[1]
    assert mask.shape == (32, 128) and set(np.unique(mask)) == {np.float32(-1e9), np.float32(0)}


def test_whole_numbers_keep_their_range_at_other_shapes(tmp_path: Path) -> None:
    text = DRAWN.replace(
        "np.where(np.random.random((64, 128)) < 0.7, 0.0, -1e9).astype(np.float32)", "np.arange(5, 15).astype(np.int32)"
    )
    text = text.replace("mask", "pages").replace("x + pages", "x[pages]")
    assert 'kind = "integers", low = 5, high = 15' in drafted(tmp_path, facts_of(tmp_path / "ref.py", text))


def test_an_argument_that_forward_ignores_does_not_make_every_candidate_suspect(tmp_path: Path) -> None:
    drafted(tmp_path, facts_of(tmp_path / "ref.py", DRAWN.replace("x + mask", "2 * mask")))
    how = load_workload(tmp_path).argument("x").distribution
    assert how is not None and how.fixed


def test_work_is_drafted_as_a_multiple_of_extents_where_it_is_one(tmp_path: Path) -> None:
    text = drafted(tmp_path, facts_of(tmp_path / "ref.py", DRAWN))
    assert (
        'vector_flops = "7*64*128"' in text and 'matmul_flops = "64*64*128"' in text and 'hbm_bytes = "98305"' in text
    )


def test_comments_of_a_draft_stand_in_one_column(tmp_path: Path) -> None:
    for text in (DRAWN, DRAWN.replace("np.float32", "np.float16")):
        lines = drafted(tmp_path, facts_of(tmp_path / "ref.py", text)).splitlines()
        assert len({line.index("# ") for line in lines if "# " in line and not line.startswith("#")}) == 1


def test_a_reference_that_fails_at_another_shape_is_told_that_shape_and_what_is_drawn_there(tmp_path: Path) -> None:
    text = DRAWN.replace("    return x + mask", "    assert x.shape[0] == 64\n    return x + mask")
    facts = facts_of(tmp_path / "ref.py", text)
    drafted(tmp_path, facts)
    toml = (tmp_path / "workload.toml").read_text(encoding="utf-8")
    toml = toml.replace("[64, 128]", '["M", 128]').replace("tags =", "values = { M = 64 }\ntags =")
    (tmp_path / "workload.toml").write_text(toml, encoding="utf-8")
    other = load_workload(tmp_path, {"M": 32})
    with pytest.raises(WorkloadError, match=r"ref\.py:9: forward raised AssertionError at the shape M=32\n") as refused:
        reference_outputs(other, make_inputs(other, seed=1))
    assert "get_inputs is not called at this shape" in refused.value.hint
    smaller = tuple(replace(one, shape=(32, 128), kernel_shape=(32, 128)) for one in facts.arguments)
    refusals = drafts.lowered_kernels(tmp_path / "ref.py", facts, replace(facts, arguments=smaller)).refused
    assert all(
        "AssertionError" in why and "with x 32x128, mask 32x128; get_inputs is not" in why for why in refusals.values()
    )


def test_a_weight_without_shapes_says_what_to_take_out(tmp_path: Path) -> None:
    text = drafted(tmp_path, facts_of(tmp_path / "ref.py", DRAWN))
    (tmp_path / "workload.toml").write_text("weight = 1\n" + text, encoding="utf-8")
    with pytest.raises(WorkloadError, match="has no \\[\\[shapes\\]\\]") as refused:
        load_workload(tmp_path)
    assert refused.value.hint == "Take out the line, or list another shape."


@pytest.mark.parametrize("values", ["[]", "[true]", "[nan]", '"0"'])
def test_the_values_of_a_distribution_are_numbers(tmp_path: Path, values: str) -> None:
    text = drafted(tmp_path, facts_of(tmp_path / "ref.py", DRAWN))
    (tmp_path / "workload.toml").write_text(text.replace("[-1e9, 0]", values), encoding="utf-8")
    with pytest.raises(WorkloadError, match="needs a list of numbers, such as"):
        load_workload(tmp_path)
