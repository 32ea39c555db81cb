"""The doctor says which performance model runs, and what is missing for the faster one."""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from acceld.cli.diagnosis import machine
from acceld.cli.diagnosis.machine import EXTRAS
from acceld.cli.main import main
from acceld.evaluate.opinion import RULE
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


def test_every_extra_of_the_package_has_its_size_in_the_doctor_and_on_the_page() -> None:
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev", "release"}
    page = (root / "docs/install.md").read_text()
    told: dict[str, int] = {}
    for line in page.splitlines():
        if names := re.findall(r"`acceld\[(\w+)\]`", line.split("|")[1] if line.startswith("|") else ""):
            sizes = re.split(r", (?=\d\d\b)", line.split("|")[3].strip())
            told |= dict(zip(names, (int(size.replace(",", "")) for size in sizes), strict=True))
    assert told == {name: megabytes for name, (_, megabytes) in EXTRAS.items()}


def test_the_doctor_says_which_extras_are_there_and_what_rays_client_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_importable", {"ray", "mcp", *machine.NEEDED}.__contains__)
    monkeypatch.setenv("ACCELD_DEVICES_CLUSTER", "ray://head:10001")
    monkeypatch.chdir(tmp_path)
    asked = argparse.Namespace(home=str(tmp_path))
    found = {one.name: one for look in (machine._python, machine._hosts) for one in look(asked)}
    assert found["extras"].text.startswith("installed: mcp 20 MB, cluster 214 MB; not installed: cuda 2,800 MB")
    assert (found["Ray"].state, "pip install 'ray[client]'" in found["Ray"].todo) == ("fail", True)


def test_the_doctor_lists_kernels_that_awss_tools_refuse_once_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", "--home", str(tmp_path)]) == 0
    assert main(["stop", "--home", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("*.db")
    with closing(sqlite3.connect(file)) as database, database:
        for source, rule in (("aaaa", RULE), ("aaaa", RULE), ("bbbb", RULE), ("cccc", "tolerance")):
            database.execute(
                "INSERT INTO evaluations (key, workload, backend, chip, status, source_sha256, program_sha256, failure_rule,"
                " failure_message, failure_line, failure_hint, sandbox_level, seconds, log, reused, created_at)"
                " VALUES ('k', 'silu', 'simulator', 'trn2', 'compile_error', ?, '', ?, 'nki 0.6 refuses', 7, '', 'L4', '{}', '',"
                " 0, 0)",
                (source, rule),
            )
    capsys.readouterr()
    main(["doctor", "--json", "--home", str(tmp_path)])
    found = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["name"] == "second opinion"]
    listed = [one["text"] for one in found if "refuses" in one["text"]]
    assert [text.split(" of ")[0] for text in listed] == ["kernel bbbb", "kernel aaaa"]
    assert "silu on trn2, line 7: nki 0.6 refuses" in listed[0]
