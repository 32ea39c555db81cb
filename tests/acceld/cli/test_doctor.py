"""The doctor says which performance model runs, and what is missing for the faster one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.nki.timing import passes


@pytest.mark.parametrize(
    ("compiled", "state", "words", "todo"),
    [(True, "ok", "compiled", ""), (False, "note", "runs in Python", "install a C++ compiler, then acceld again")],
)
def test_the_doctor_says_if_the_performance_model_is_compiled(
    compiled: bool,
    state: str,
    words: str,
    todo: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(passes, "COMPILED", compiled)
    main(["doctor", "--json", "--home", str(tmp_path)])
    (found,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["name"] == "simulator"]
    assert (found["state"], found["todo"]) == (state, todo) and words in found["text"]
