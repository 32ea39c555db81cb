"""``suite`` through a daemon with scripted parts: slices, resuming, competitors, and two suites side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from acceld.cli.commands import suite as command
from acceld.cli.main import main
from acceld.cli.reference import write_reference_workload
from acceld.client import Client
from acceld.drafts import DraftArgument
from acceld.events import RunStateChanged
from acceld.home import Home
from acceld.model import RunState
from acceld.workloads import workload
from tests.acceld.cli.test_costs_check import served
from tests.acceld.llm.server import Reply


@pytest.fixture
def suite(folder: Path) -> str:
    (folder / "own.toml").write_text('name = "own"\n[[kernel]]\nworkload = "silu"\n[[kernel]]\nworkload = "mamba"\n')
    return "own.toml"


def test_a_suite_is_one_table_and_the_same_command_goes_on(
    daemon: str, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["suite", "run", suite, "--strategy", "beam", "--hours", "1", "--home", daemon]
    assert main([*words, "--json", "-o", "bars.svg"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in first["rows"]] == ["silu", "mamba"]
    assert all(row["runs"] and row["speedup"] >= 1 for row in first["rows"])
    assert first["geometric_mean"]["count"] == 2 and ">silu<" in Path("bars.svg").read_text("utf-8")
    Path("competitors").mkdir()
    Path("competitors/silu_theirs.py").write_text(workload("silu").baselines["nki_legacy"].read_text("utf-8"), "utf-8")
    assert main([*words, "--competitors", "competitors", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [row["runs"][: len(old["runs"])] for row, old in zip(again["rows"], first["rows"], strict=True)] == [
        row["runs"] for row in first["rows"]
    ]
    evaluated, without = again["rows"]
    assert evaluated["competitor_us"] is not None or "competitor: " in evaluated["note"]
    assert without["competitor_us"] is None and without["note"] == ""
    for name, record in (("a.json", first), ("b.json", again)):
        Path(name).write_text(json.dumps(record), "utf-8")
    assert main(["compare", "a.json", "b.json"]) == 0
    said = capsys.readouterr().out
    assert "A / B" in said and "geometric mean of 2 workloads: B is" in said and "as fast as A (95 % interval" in said


def test_what_is_no_suite_is_a_usage_error(folder: Path, suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "run", suite, "other.toml"]) == 2
    assert main(["compare", "c.json", "b.json"]) == 2
    assert "there is no file c.json" in capsys.readouterr().err


def test_a_workload_that_there_is_not_is_named_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("typo.toml").write_text('name = "own"\n[[kernel]]\nworkload = "silu"\n[[kernel]]\nworkload = "slu"\n')
    assert main(["suite", "run", "typo.toml"]) == 2
    assert "'slu'" in (said := capsys.readouterr().err) and "'silu'" in said
    assert not Home(folder / ".acceld").database.exists()


def test_a_suite_whose_models_fail_names_the_error_and_has_its_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon, the simulator and the model's client are the real ones; the server refuses every key."""
    Path("twice.py").write_text("def forward(x):\n    return x + x\n", "utf-8")
    given = [DraftArgument("x", (128, 64), "float32")]
    write_reference_workload(Path("twice.py"), given, folder / "twice", name="twice")
    Path("own.toml").write_text('name = "own"\n[[kernel]]\nworkload = "twice"\n', "utf-8")
    with served(Reply(kind="unauthorized_401")) as server:
        model = f'[models.m]\nbase_url = "{server.base_url}"\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n'
        roles = '[llm.planner]\nmodels = ["m"]\n[llm.executor]\nmodels = ["m"]\n'
        Path("acceld.toml").write_text(model + roles, "utf-8")
        assert main(["config", "trust", "."]) == 0
        try:
            capsys.readouterr()
            assert (
                main(["suite", "run", "own.toml", "--proposer", "llm", "--api", "nki", "--chip", "trn2", "--json"]) == 4
            )
        finally:
            main(["stop", "--now"])
    said = capsys.readouterr()
    (row,) = json.loads(said.out.partition("\nstopped")[0])["rows"]
    assert row["note"].startswith("models: model 'm': wrong key") and "the search failed for twice" in said.err


@pytest.fixture
def stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file in which a workload can be named whose candidates' evaluations then never end."""
    place = folder / "stuck"
    place.write_text("mamba", "utf-8")
    monkeypatch.setenv("SCRIPTED_STUCK", str(place))
    return place


def test_a_slice_ends_what_it_runs_and_the_next_command_goes_on_with_its_run(
    stuck: Path, daemon: str, suite: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # time stands still while evaluations end: the stuck slice ends late, and all time is over once its run is stuck again
    times = (0.0, 150000.0, 1e9)
    monkeypatch.setattr(command, "_now", lambda: times[max(0, len(stuck.read_text("utf-8").split()) - 1)])
    words = ["suite", "run", suite, "--strategy", "beam", "--home", daemon, "--json", "--hours", "100"]
    assert main(words) == 0
    found = capsys.readouterr()
    rows = {row["workload"]: row for row in json.loads(found.out)["rows"]}
    assert rows["silu"]["speedup"] > 1, "the kernel after the stuck one has its slice"
    assert rows["mamba"]["speedup"] == 1 and len(rows["mamba"]["runs"]) == 1, "both of its slices are one run"
    (number,) = rows["mamba"]["runs"]
    assert f"r{number} is not finished" in rows["mamba"]["note"] and f"(r{number}, not finished)" in found.err
    client = Client(Home(Path(daemon)))
    assert client.get(f"/v1/runs/{number}")["state"] == "paused"
    assert client.get("/v1/status")["queue"]["slots_in_use"] == 0
    waiting = {one["id"] for one in client.get(f"/v1/runs/{number}/candidates")["candidates"] if not one["status"]}
    assert waiting, "what was cut off is known"
    stuck.write_text("", "utf-8")
    assert main(words) == 0
    again = {row["workload"]: row for row in json.loads(capsys.readouterr().out)["rows"]}["mamba"]
    assert again["runs"][0] == number and again["speedup"] > 1 and not again["note"]
    kept = client.get(f"/v1/runs/{number}/candidates")["candidates"]
    assert {one["id"] for one in kept if one["status"]} >= waiting
    assert client.get(f"/v1/runs/{number}")["state"] == "finished"


def test_a_slice_lets_a_strict_gate_end_and_its_win_counts(
    stuck: Path, daemon: str, suite: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck.write_text("strict/mamba", "utf-8")
    # time stands still until the strict gate runs; then the slice is over, and so is all time
    monkeypatch.setattr(command, "_now", lambda: 1e9 if stuck.read_text("utf-8") != "strict/mamba" else 0.0)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if "strict gate" in text:
            stuck.write_text("", "utf-8")

    monkeypatch.setattr(command, "say", hear)
    assert main(["suite", "run", suite, "--strategy", "beam", "--home", daemon, "--json", "--hours", "100"]) == 0
    row = next(one for one in json.loads(capsys.readouterr().out)["rows"] if one["workload"] == "mamba")
    (number,) = row["runs"]
    assert said[0] == f"r{number} pauses once the strict gate that runs has ended, in at most 30 minutes"
    assert row["speedup"] == pytest.approx(100 / 90), "the win that the gate confirmed"
    client = Client(Home(Path(daemon)))
    assert client.get(f"/v1/runs/{number}")["state"] == "paused"
    kept = client.get(f"/v1/runs/{number}/candidates")["candidates"]
    assert [one["gate"] for one in kept].count("strict") == 1, "no further work began"


def test_a_run_that_is_resumed_before_its_strict_gate_ends_does_not_pause(stuck: Path, daemon: str) -> None:
    stuck.write_text("strict/silu", "utf-8")
    client = Client(Home(Path(daemon)))
    asked = {"workload": "silu", "preset": "quick", "search": {"iterations": 2, "patience": 0}}
    number = client.send("POST", "/v1/runs", asked)["id"]
    while stuck.read_text("utf-8") == "strict/silu":
        time.sleep(0.01)
    actions = f"/v1/runs/{number}/actions"
    pausing = client.send("POST", actions, {"action": "pause", "at_once": True})
    assert pausing["run"]["state"] == "running" and pausing["run"]["message"] == pausing["result"]
    client.send("POST", actions, {"action": "resume"})
    stuck.write_text("", "utf-8")
    states = [one.data.state for one in client.follow(number, 20) if isinstance(one.data, RunStateChanged)]
    assert states[-1] is RunState.FINISHED and RunState.PAUSED not in states
