"""Drafts of workload folders load as workloads, and unreadable input is refused with a message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acceld import drafts
from acceld.errors import MOST_NAMED, UsageError, WorkloadError, nearest_of
from acceld.workloads import load_workload, make_inputs
from acceld.workloads.oracle import load_reference
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
        ("{'sum': 1.0}", "out0 of forward is of type dict"),
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
