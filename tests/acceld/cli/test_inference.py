"""Commands infer API, chip and arguments in one way, from a kernel's file, its signature and its workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from acceld import config
from acceld.cli.commands.profile import _error
from acceld.cli.kernels import place_of
from acceld.cli.main import main
from acceld.cli.reference import write_reference_workload
from acceld.drafts import DraftArgument, parse_argument, parse_scalar, reference_facts, workload_toml
from acceld.errors import UsageError
from acceld.given_arguments import by_forward, by_signature
from acceld.model import Correctness, Gate, Kernel
from acceld.workloads import find_workloads, load_workload, workload
from tests.properties import one_in

CURRENT = """import nki
import nki.language as nl

@nki.jit
def kernel(x, w, eps=1e-6):
    return x
"""
KERNEL = Kernel(CURRENT, "nki", "kernel", (), 1, "mine.py")


def of_one_api(folder: Path) -> Path:
    """Write a workload that has a kernel for ``nki`` alone. Return its folder."""
    place = folder / "mine"
    place.mkdir()
    (place / "kernel.py").write_text(CURRENT, encoding="utf-8")
    given = [DraftArgument("x", (128, 128), "float32"), DraftArgument("w", (128, 128), "float32")]
    text = workload_toml("mine", given, [], baselines={"nki": "kernel.py"}, reference=None)
    (place / "workload.toml").write_text(text + "\n[outputs.out]\nshape = [128, 128]\ndtype = 'float32'\n")
    return place


def test_the_api_is_that_of_the_imports_or_of_the_workload_s_only_kernel(tmp_path: Path) -> None:
    folder, settings = of_one_api(tmp_path), config.Resolved(config.Config(), {})
    found = load_workload(folder)
    assert settings.config.search.api == "nki_legacy", "or nothing is inferred here"
    for path in (folder, folder / "kernel.py", None):
        assert place_of(settings, path, found).api == "nki"
    assert place_of(settings, folder, found, chip="trn3").chip == "trn3"
    with pytest.raises(UsageError, match="no kernel for nki_legacy"):
        place_of(settings, folder, found, api="nki_legacy")
    asked = place_of(settings, folder / "kernel.py", found, chip="trn1")
    assert (asked.api, asked.chip) == ("nki", "trn1"), "reported to run there, so a named chip is taken"


def said(**search: str) -> config.Resolved:
    """Return a configuration in which these keys of a search are set."""
    origins = {f"search.{key}": "a file" for key in search}
    keys = cast("Any", search)
    return config.Resolved(replace(config.Config(), search=config.SearchConfig(**keys)), origins)


@pytest.mark.parametrize(
    ("search", "place"),
    [
        ({}, ("nki", "trn2")),
        ({"chip": "trn3"}, ("nki", "trn3")),
        ({"chip": "trn1"}, ("nki_legacy", "trn1")),
        ({"api": "nki_legacy"}, ("nki_legacy", "trn1")),
        ({"api": "nki_legacy", "chip": "trn2"}, ("nki_legacy", "trn2")),
    ],
)
def test_a_formula_gets_the_current_api_unless_another_is_configured(
    tmp_path: Path, search: dict[str, str], place: tuple[str, str]
) -> None:
    reference = tmp_path / "ref.py"
    reference.write_text("import numpy as np\n\ndef forward(x):\n    return np.tanh(x)\n", encoding="utf-8")
    given = [DraftArgument("x", (128, 128), "float32")]
    folder = tmp_path / "made"
    write_reference_workload(reference, given, folder, name="ref")
    found = load_workload(folder)
    assert list(found.baselines) == ["nki", "nki_legacy"]
    for path, where in ((reference, None), (None, found), (folder, found)):
        chosen = place_of(said(**search), path, where)
        assert (chosen.api, chosen.chip) == place
    asked = place_of(said(**search), None, found, api="nki_legacy", chip="trn1")
    assert (asked.api, asked.chip) == ("nki_legacy", "trn1")


def test_a_workload_with_kernels_of_both_apis_gets_the_first_one_s_unless_api_or_chip_are_configured() -> None:
    found = workload("matmul_bf16")
    assert next(iter(found.baselines)) == "nki"
    for settings, expected in (({}, ("nki", "trn2")), ({"chip": "trn1"}, ("nki_legacy", "trn1"))):
        chosen = place_of(said(**settings), None, found)
        assert (chosen.api, chosen.chip) == expected
    older = replace(found, baselines={name: found.baselines[name] for name in ("nki_legacy", "nki")})
    chosen = place_of(said(), None, older)
    assert (chosen.api, chosen.chip) == ("nki_legacy", "trn1")


def test_every_shipped_workload_with_kernels_of_both_apis_names_the_current_one_first() -> None:
    both = [one for one in find_workloads(()).values() if {"nki", "nki_legacy"} <= one.baselines.keys()]
    assert len(both) == 18 and [one.name for one in both if next(iter(one.baselines)) != "nki"] == []


@pytest.mark.parametrize("command", one_in(3, ["watch", "suggest", "profile"]))
def test_every_command_takes_a_folder_whose_kernel_is_for_another_api_than_configured(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--once"] if command == "watch" else ["--latency-only"] if command == "profile" else []
    main([command, str(of_one_api(tmp_path)), *more, "--home", str(tmp_path / "state")])
    assert "no baseline for API" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["8x8:float32", "8x8:float32"], ["x", "w"]),
        (["w=4x4:float32", "8x8:float32"], ["x", "w"]),
        (["w=4x4:float32", "x=8x8:float32"], ["x", "w"]),
    ],
)
def test_arguments_stand_in_the_order_of_the_signature(texts: list[str], names: list[str]) -> None:
    given = by_signature(KERNEL, [parse_argument(text, place) for place, text in enumerate(texts)])
    assert [one.name for one in given] == names and given[0].shape == (8, 8)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["x=8x8:float32", "x=4x4:float32", "8x8:float32"], "argument 'x' is given twice"),
        (["y=8x8:float32"], "the kernel in mine.py has no parameter 'y'"),
        (["8x8:float32"], "has the parameter w, which no argument describes"),
        (["8x8:float32"] * 4, "4 arguments are described, and the kernel in mine.py has 3 parameters: x, w, eps"),
    ],
)
def test_arguments_that_the_signature_lacks_are_named(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        by_signature(KERNEL, [parse_argument(text, place) for place, text in enumerate(texts)])


def test_a_parameter_that_is_passed_over_takes_its_default() -> None:
    kernel = replace(KERNEL, text="import nki\n@nki.jit\ndef kernel(x, eps=1e-6, w=None):\n    return x\n")
    given = by_signature(kernel, [parse_argument(text, 0) for text in ("w=4x4:float32", "x=8x8:float32")])
    assert [(one.name, one.value) for one in given] == [("x", None), ("eps", 1e-6), ("w", None)]


FORMULA = "import numpy as np\ndef forward(a, b, scale=2.0):\n    return np.exp(a) * scale + b\n"


@pytest.mark.parametrize("texts", [["b=8:float32", "a=4x8:float32"], ["b=8:float32", "4x8:float32"]])
def test_arguments_of_a_reference_stand_in_the_order_of_forward(texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "formula.py"
    path.write_text(FORMULA)
    given = by_forward(path, [parse_argument(text, place) for place, text in enumerate(texts)])
    assert [(one.name, one.shape) for one in given] == [("a", (4, 8)), ("b", (8,))]


@pytest.mark.parametrize("command", ["init", "optimize"])
@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["a=4x8:float32", "bb=8:float32"], "formula.py has no parameter 'bb'"),
        (["a=4x8:float32"], "formula.py has the parameter b, which no argument describes"),
        (["8:float32"] * 4, "4 arguments are described"),
    ],
)
def test_arguments_that_forward_lacks_are_named(
    command: str,
    texts: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("formula.py").write_text(FORMULA)
    words = [word for text in texts for word in ("--arg", text)]
    start = ["init", "--reference", "formula.py"] if command == "init" else ["optimize", "formula.py", "--dry-run"]
    assert main([*start, *words, "--home", str(tmp_path / "state")]) == 2
    assert said in capsys.readouterr().err


def test_a_reference_that_draws_its_inputs_needs_no_argument_for_each(tmp_path: Path) -> None:
    path = tmp_path / "formula.py"
    path.write_text(FORMULA + "def get_inputs():\n    return np.ones((4, 8)), np.ones(8)\n")
    given = by_forward(path, [parse_argument("a=4x8:float32", 0)])
    assert [one.name for one in given] == ["a"]
    for later in (parse_argument("b=8:float32", 0), parse_scalar("scale=3")):
        with pytest.raises(UsageError, match="has the parameter a before a described one"):
            by_forward(path, [later])


def test_a_mask_of_a_draft_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(
        "import numpy as np\ndef get_inputs():\n"
        "    x = np.random.standard_normal((8, 8)).astype(np.float32)\n    return x, (x > 0).astype(np.float32)\n"
        "def forward(x, keep):\n    return x * keep\n"
    )
    facts = reference_facts(path)
    assert [one.is_mask for one in facts.arguments] == [False, True]
    assert [one.name for one in facts.arguments] == ["x", "keep"], "forward names the arguments"
    text = workload_toml("m", facts.arguments, facts.outputs, baselines={}, reference="reference.py")
    assert text.count("fixed = true") == 1
    named = [parse_argument("x=8x8:float32", 0), parse_argument("mask=8x8:float32", 1)]
    drawn = workload_toml("m", named, [], baselines={}, reference="reference.py", drawn=True)
    assert drawn.count("fixed = true") == 1 and drawn.count('kind = "normal"') == 1


def test_a_failed_init_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(CURRENT.replace("return x", "return nl.no_such_call(x)"))
    words = ["--arg", "x=128x128:float32", "--arg", "w=128x128:float32", "--home", str(tmp_path / "state")]
    assert main(["init", "bad.py", *words]) != 0
    assert not (tmp_path / "bad").exists() and not list(tmp_path.glob(".bad*"))
    assert "no_such_call" in capsys.readouterr().err


def test_a_tolerance_says_where_it_comes_from() -> None:
    found = workload("silu")
    derived = Correctness(Gate.SEARCH, 1e-8, found.tolerance / 7)
    assert "tolerance 2.9e-06 (derived from the rounding noise" in _error(derived, found)
    assert "(declared in workload.toml)" in _error(replace(derived, tolerance=found.tolerance), found)
