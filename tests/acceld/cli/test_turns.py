"""Messages about a run that waits for its turn, and about a best kernel that is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.cli.best_kernels import BestKernel
from acceld.cli.commands import optimize
from acceld.cli.main import main
from acceld.client import Client
from acceld.events import RunStateChanged
from acceld.home import Home
from acceld.model import RunState

ASKED = {"workload": "silu", "preset": "quick", "search": {"iterations": 2, "patience": 0}}


@pytest.fixture
def stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file by which runs of silu are held at their strict gate, until it is emptied."""
    place = folder / "stuck"
    place.write_text("strict/silu", "utf-8")
    monkeypatch.setenv("SCRIPTED_STUCK", str(place))
    return place


def begun(client: Client, run: int) -> None:
    """Wait until a run has its baseline's latency."""
    for event in client.events(0, run):
        if event["kind"] == "best_changed":
            return


def test_a_paused_run_gives_its_place_to_the_next_and_waits_for_a_place_again(stuck: Path, daemon: str) -> None:
    client = Client(Home(Path(daemon)))

    def state(run: int, action: str = "") -> tuple[str, list[int]]:
        if action:
            client.send("POST", f"/v1/runs/{run}/actions", {"action": action})
        row = client.get(f"/v1/runs/{run}")
        return row["state"], row["steering"].get("ahead", [])

    one, two, three, four = [client.send("POST", "/v1/runs", ASKED)["id"] for _ in range(4)]
    for run in (one, two):
        begun(client, run)
    assert state(three) == ("queued", [one, two])
    assert state(four) == ("queued", [one, two, three])
    assert state(three, "pause")[0] == "paused"
    assert state(four) == ("queued", [one, two])
    assert state(three, "resume") == ("queued", [one, two])
    assert state(one, "pause") == ("paused", [])
    begun(client, three)
    assert state(one, "resume") == ("queued", [two, three, four])
    assert state(one, "pause")[0] == "paused"
    assert state(one, "resume") == ("queued", [two, three, four])
    assert state(two, "pause") == ("paused", [])
    begun(client, four)
    assert state(two, "resume") == ("queued", [three, four, one])
    stuck.write_text("", "utf-8")
    for run in (one, two, three, four):
        *_, last = client.follow(run, 20)
        assert isinstance(last.data, RunStateChanged) and last.data.state is RunState.FINISHED


def test_a_run_behind_others_says_behind_which_at_once_and_when_it_begins(
    stuck: Path, daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(Home(Path(daemon)))
    for _ in range(2):
        client.send("POST", "/v1/runs", ASKED)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if "waits for its turn" in text:
            stuck.write_text("", "utf-8")

    monkeypatch.setattr(optimize, "say", hear)
    assert main(["optimize", "silu", "--strategy", "beam", "--iterations", "1", "--wait", "--home", daemon]) == 0
    assert said[0].startswith("r3 waits for its turn behind r1, r2: acceld show r1 says what r1 does")
    assert said[1] == "r3 begins"


def test_a_run_that_begins_at_once_says_nothing_of_turns(
    daemon: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", "silu", "--strategy", "beam", "--iterations", "1", "--wait", "--home", daemon]) == 0
    assert "turn" not in capsys.readouterr().err


def test_what_the_daemon_waits_for_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting:
        texts: tuple[str, ...] = ()

        def get(self, path: str) -> dict[str, tuple[str, ...]]:
            return {"waits_for": self.texts}

    client, said = Waiting(), list[str]()
    monkeypatch.setattr(optimize, "say", said.append)
    monkeypatch.setattr(optimize, "WAITS_S", -1.0)
    waits = optimize._Waits(client)  # type: ignore[arg-type]
    for client.texts in ((), ("no host yet",), ("no host yet",), ("the disk is full",)):
        waits.look()
    assert said == ["the daemon waits: no host yet", "the daemon waits: the disk is full"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from .sizes import COLUMNS\n", True),
        ("from ops.sizes import COLUMNS\n", True),
        ("import ops.sizes\n", True),
        ("import numpy\n", False),
    ],
)
def test_a_printed_kernel_says_which_modules_of_its_package_it_needs(
    text: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    closure = {"ops/__init__.py": "", "ops/sizes.py": "COLUMNS = 64\n"}
    candidate = {"text": text, "closure": closure, "filename": "ops/add.py"}
    BestKernel({"id": 3, "best": 5}, candidate).say_needs()
    told = capsys.readouterr().err
    assert (
        "c5 imports modules of its own package (ops/sizes.py)" in told and "acceld apply r3 ops/add.py" in told
    ) is said
    assert said or not told
