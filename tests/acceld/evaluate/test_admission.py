"""A workload on which a pass means little is detected."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.errors import WorkloadError
from acceld.evaluate.correctness import examination
from acceld.evaluate.correctness.admission import Admission, Admissions, answered
from acceld.evaluate.correctness.examination import examine
from acceld.evaluate.sandbox.messages import pack
from acceld.evaluate.sandbox.process import Outcome
from acceld.evaluate.sandbox.reply import Reply
from acceld.workloads import Workload, address_of, load_unchanged, load_workload, make_inputs, reference_outputs
from acceld.workloads.rows import BlockedReference, RowBlock, row_blocks

TOML = """
name = "weak"
description = "For a test"
[values]
N = 64
[arguments.x]
shape = [32, "N"]
[arguments.y]
shape = [32, "N"]
{fixed}
[outputs.out]
shape = [32, "N"]
[distributions]
own = "declared"
""" + "".join(
    f'{name} = {{ refused = "small" }}\n'
    for name in "scaled_up scaled_down shifted integers row_scaled sparse special".split()
)


def workload(folder: Path, formula: str, fixed: str = "") -> str:
    """Return the complaints about a workload whose reference returns ``formula``."""
    (folder / "workload.toml").write_text(TOML.replace("{fixed}", fixed))
    (folder / "reference.py").write_text(f"import numpy as np\n\ndef forward(x, y):\n    return {formula}\n")
    return examine(load_workload(folder), 7).complaint


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("x * y", ""),
        ("x + 0 * y", "argument 'y' (part 1 of 4)"),
        ("x + 1e-9 * y", "argument 'y' (part 1 of 4)"),
        ("x + np.where(np.arange(32)[:, None] < 16, y, 0)", "argument 'y' (part 3 of 4)"),
        ("np.ones_like(x) + 1e-12 * x * y", "a kernel that writes one constant would pass"),
        ("x * y + 1e-3 * np.random.normal(size=x.shape)", "other outputs for equal inputs"),
    ],
)
def test_an_input_that_makes_no_difference_is_named(tmp_path: Path, formula: str, said: str) -> None:
    found = workload(tmp_path, formula)
    assert said in found and bool(said) == bool(found)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("np.mean((x - y) ** 2)", ""),
        ("np.mean(x**2)", "argument 'y' (part 1 of 4)"),
        ("np.float32(1) + 1e-12 * x[0, 0] * y[0, 0]", "a kernel that writes one constant would pass"),
    ],
)
def test_a_single_number_as_output_is_examined_too(tmp_path: Path, formula: str, said: str) -> None:
    toml = TOML.replace("{fixed}", "").replace('[outputs.out]\nshape = [32, "N"]', "[outputs.out]\nshape = []")
    (tmp_path / "workload.toml").write_text(toml)
    (tmp_path / "reference.py").write_text(f"import numpy as np\n\ndef forward(x, y):\n    return {formula}\n")
    found = examine(load_workload(tmp_path), 7).complaint
    assert (said in found) if said else not found


@pytest.mark.parametrize(("formula", "independent"), [("x * y", True), ("x * y - x.mean(axis=0)", False)])
def test_rows_that_depend_on_each_other_can_not_be_declared(tmp_path: Path, formula: str, independent: bool) -> None:
    text = TOML.replace("{fixed}", "").replace("[values]", 'rows = ["M"]\n[values]\nM = 4096', 1).replace("32", '"M"')
    (tmp_path / "workload.toml").write_text(text.replace("N = 64", "N = 512"))
    (tmp_path / "reference.py").write_text(f"import numpy as np\n\ndef forward(x, y):\n    return {formula}\n")
    if independent:
        assert examine(load_workload(tmp_path), 7).complaint == ""
    else:
        with pytest.raises(WorkloadError, match="forward gives other outputs for some of these rows alone"):
            examine(load_workload(tmp_path), 7)


def test_a_reference_that_changes_its_inputs_is_named_though_its_outputs_stay(tmp_path: Path) -> None:
    assert "the reference changes its argument x" == workload(tmp_path, "np.clip(x, -1, 1, out=x) * y")


def test_files_that_change_between_a_request_and_its_answer_are_named(tmp_path: Path) -> None:
    workload(tmp_path, "x * y")
    known = load_workload(tmp_path)
    load_unchanged(address_of(known))
    shaped = load_workload(tmp_path, {"N": 32})
    assert load_unchanged(address_of(shaped)).hash == shaped.hash != known.hash
    workload(tmp_path, "x - y")
    with pytest.raises(WorkloadError, match="were changed while a kernel was evaluated"):
        load_unchanged(address_of(known))


def test_an_argument_that_is_declared_fixed_need_not_matter(tmp_path: Path) -> None:
    assert workload(tmp_path, "x + 0 * y", "distribution = { kind = 'normal', fixed = true }") == ""


def test_what_there_is_no_time_for_is_left_open_and_named(tmp_path: Path) -> None:
    workload(tmp_path, "x + y")
    found = examine(load_workload(tmp_path), 7, most_s=0)
    assert found.complaint == ""
    assert found.left == ("x", "y") and "no time for x, y" in found.text


async def test_a_workload_is_examined_once_and_again_when_it_changes(tmp_path: Path) -> None:
    asked = []

    async def admit(loaded: Workload, seed: int) -> Admission:
        asked.append(seed)
        return examine(loaded, seed)

    workload(tmp_path, "x + 0 * y")
    for admissions in (Admissions(tmp_path / "floors"), Admissions(tmp_path / "floors")):
        refused = await admissions.refuse(load_workload(tmp_path), admit)
        assert refused is not None and "weak: outputs do not react to argument 'y'" in refused.message
    assert len(asked) == 1
    workload(tmp_path, "x + y")
    assert await admissions.refuse(load_workload(tmp_path), admit) is None
    assert len(set(asked)) == 2


async def test_without_a_reference_or_with_recorded_inputs_nothing_is_tried(tmp_path: Path) -> None:
    workload(tmp_path, "x + y")
    loaded = load_workload(tmp_path)

    async def admit(loaded: Workload, seed: int) -> Admission:
        raise AssertionError

    for without in (replace(loaded, reference=None), replace(loaded, sample=tmp_path / "inputs.npz")):
        found = await Admissions(tmp_path / "floors").of(without, admit)
        assert found.untried and not found.complaint


async def test_what_could_not_be_tried_here_is_tried_again_elsewhere(tmp_path: Path) -> None:
    workload(tmp_path, "x + y")
    loaded, answers = load_workload(tmp_path), [Admission(untried="too dear here"), Admission("weak")]

    async def admit(loaded: Workload, seed: int) -> Admission:
        return answers.pop(0)

    here = Admissions(tmp_path / "floors")
    for _ in range(2):
        assert (await here.of(loaded, admit)).untried
    assert here.known(loaded) is None
    assert (await Admissions(tmp_path / "floors").of(loaded, admit)).complaint == "weak"


def test_inputs_on_which_the_reference_is_not_finite_tell_nothing(tmp_path: Path) -> None:
    workload(tmp_path, "x + y * np.inf")
    found = examine(load_workload(tmp_path), 7)
    assert (found.untried, found.complaint, found.variants) == (
        "the workload's reference is finite on no inputs",
        "",
        (),
    )


def test_an_array_is_one_region_where_the_reference_is_expensive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "FINE_S", 0.0)
    assert workload(tmp_path, "x + np.where(np.arange(32)[:, None] < 16, y, 0)") == ""
    assert workload(tmp_path, "x + 0 * y") == "outputs do not react to argument 'y': a kernel may ignore it"


async def test_an_answer_that_can_not_be_read_back_is_found_anew(tmp_path: Path) -> None:
    workload(tmp_path, "x + y")
    loaded = load_workload(tmp_path)

    async def admit(loaded: Workload, seed: int) -> Admission:
        return Admission("weak", 4, ("own",), ("x",), 0.5)

    admissions = Admissions(tmp_path / "floors")
    stored = await admissions.of(loaded, admit)
    assert admissions.known(loaded) == stored
    (path,) = (tmp_path / "floors").iterdir()
    for text in ("{", "{}", '{"complaint": ""}', "[]"):
        path.write_text(text)
        assert admissions.known(loaded) is None
        assert await admissions.of(loaded, admit) == stored


@pytest.mark.parametrize("cause", ["deadline", "cpu"])
def test_a_reference_that_takes_too_long_is_left_open(tmp_path: Path, cause: str) -> None:
    workload(tmp_path, "x + y")
    reply = Reply(os.memfd_create("reply"))
    found = answered(load_workload(tmp_path), Outcome(None, 9, cause, 60.0), reply)
    assert found.untried.startswith("the workload's reference is too expensive here") and reply.descriptor == -1


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"", "did not end: its process exited with status 1"),
        (pack({"error": "no\x1b[2J reference"}), "^no.*reference$"),
    ],
)
def test_a_reference_that_fails_is_the_workloads_fault(tmp_path: Path, written: bytes, words: str) -> None:
    workload(tmp_path, "x + y")
    reply = Reply(os.memfd_create("reply"))
    os.write(reply.descriptor, written)
    with pytest.raises(WorkloadError, match=words) as caught:
        answered(load_workload(tmp_path), Outcome(1, None, ""), reply)
    assert "\x1b" not in caught.value.message


BY_ROWS = TOML.replace("[values]", 'rows = ["M"]\n[values]\nM = 32').replace('[32, "N"]', '["M", "N"]')


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("x * y", ""),
        ("x + 0 * y", "argument 'y' (part 1 of 4)"),
        ("x + 1e-9 * y", "argument 'y' (part 1 of 4)"),
    ],
)
def test_an_admission_computes_the_blocks_that_decide_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formula: str, said: str
) -> None:
    (tmp_path / "workload.toml").write_text(BY_ROWS.replace("{fixed}", ""))
    (tmp_path / "reference.py").write_text(f"def forward(x, y):\n    return {formula}\n")
    loaded, tried = load_workload(tmp_path), list[RowBlock]()
    monkeypatch.setattr(examination, "row_blocks", lambda one: row_blocks(one, most_elements=512))
    outputs = BlockedReference.outputs

    def counted(self: BlockedReference, block: RowBlock) -> list[Any]:
        tried.append(block)
        return outputs(self, block)

    monkeypatch.setattr(BlockedReference, "outputs", counted)
    found = examine(loaded, 7)
    assert said in found.complaint and bool(said) == bool(found.complaint)
    # a quarter of an array is one of the four blocks: it decides as late as its own place
    assert len(row_blocks(loaded, 512)) == 4
    assert len(tried) == 1 + (sum(range(1, 5)) * 2 if not said else sum(range(1, 5)) + 4 * 4)


def test_an_admission_by_blocks_sees_what_is_not_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workload.toml").write_text(BY_ROWS.replace("{fixed}", ""))
    (tmp_path / "reference.py").write_text("def forward(x, y):\n    return x * y\n")
    loaded = load_workload(tmp_path)
    monkeypatch.setattr(examination, "row_blocks", lambda one: row_blocks(one, most_elements=512))
    inputs = make_inputs(loaded, 3)
    expected = [np.asarray(one, np.float64) for one in reference_outputs(loaded, inputs, False)]
    limits = examination._limits(loaded, "own", expected)
    assert not examination._differs(loaded, examination._reference, inputs, expected, limits)
    inputs[0][31, 63] = np.nan
    assert examination._differs(loaded, examination._reference, inputs, expected, limits)
