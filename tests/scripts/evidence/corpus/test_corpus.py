"""Public kernels run by their own tests against packages that stand in for Neuron's."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from scripts.evidence.corpus.__main__ import main
from scripts.evidence.corpus.host import Host, Stopped
from scripts.evidence.corpus.outcomes import Outcome, State, Trial, read, results, write
from scripts.evidence.corpus.report import changes, table
from scripts.evidence.corpus.repositories import convolution, load

LIBRARY = """
import dataclasses
from enum import Enum
import nki
import nki.collectives as collectives
import nki.isa as nisa
import nki.language as nl

class Mode(Enum):
    TWICE = 2

@dataclasses.dataclass
class Settings:
    mode: Mode
    act: object = nl.exp

@nki.jit
def scaled(x, settings, dtype=nl.float32):
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    if settings.mode is Mode.TWICE:
        tile = nl.multiply(settings.act(tile), 2.0)
    nl.store(out, tile)
    return out

@nki.jit
def wrong(x):
    return nl.load(x)

@nki.jit
def summed(x, group):
    mine, everyones = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=mine, src=x)
    collectives.all_reduce(srcs=[mine], dsts=[everyones], op=nl.add, replica_group=group)
    nisa.dma_copy(dst=out, src=everyones)
    return out
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Host, ModuleType]:
    """Return a checkout with one module, imported as its tests would."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "somebodys.py").write_text(LIBRARY)
    host = Host(tmp_path)
    host.install()
    return host, load(tmp_path / "somebodys.py", "somebodys")


def test_a_kernel_called_on_arrays_gives_arrays_whatever_it_is_configured_by(library: tuple[Host, ModuleType]) -> None:
    host, module = library
    x = np.random.default_rng(0).standard_normal((128, 32), np.float32)
    found = module.scaled(x, settings=module.Settings(module.Mode.TWICE))
    np.testing.assert_allclose(found, 2 * np.exp(x), rtol=1e-5)
    assert (host.ran, host.stopped) == (1, None)


def test_a_refused_kernel_stops_its_test_and_is_remembered(library: tuple[Host, ModuleType]) -> None:
    host, module = library
    with pytest.raises(Stopped, match="line 2"):
        module.wrong(np.zeros((128, 32), np.float32))
    assert host.stopped is not None and host.stopped.state is State.UNTRACED


def test_ranks_have_inputs_of_their_own_and_results_of_their_own(library: tuple[Host, ModuleType]) -> None:
    host, module = library
    group = sys.modules["nki.collectives"].ReplicaGroup([[0, 1], [2, 3]])
    inputs = [np.full((128, 8), 10.0**rank, np.float32) for rank in range(4)]
    found = host.run_ranks(module.summed, [{"x": x, "group": group} for x in inputs])
    assert [float(results[0][5, 3]) for results in found] == [11.0, 11.0, 1100.0, 1100.0]


def _dies() -> tuple[State, str]:
    import os

    os._exit(3)


def _raises() -> tuple[State, str]:
    raise ValueError("its reference")


def test_each_trial_has_a_process_and_an_outcome() -> None:
    cases: dict[str, Callable[[], tuple[State, str]]] = {
        "right": lambda: (State.EQUAL, "0"), "dead": _dies, "odd": _raises
    }  # fmt: skip
    found = {one.kernel: one for one in results([Trial("r", name, run) for name, run in cases.items()], 2)}
    assert {name: one.state for name, one in found.items()} == {
        "right": State.EQUAL, "dead": State.CRASH, "odd": State.UNTRIED
    }  # fmt: skip
    assert found["odd"].reason.startswith("ValueError: its reference")


def test_the_table_counts_and_a_change_is_named(tmp_path: Path) -> None:
    before = [Outcome("r", "a", State.REFUSED, "nl.x is not simulated"), Outcome("r", "b", State.EQUAL, "", 2.0)]
    after = [dataclasses.replace(before[0], state=State.EQUAL), before[1]]
    write(tmp_path / "kept.json", before)
    assert read(tmp_path / "kept.json") == before
    row = table(before)[0]
    assert (row["tried"], row["traced"], row["equal"], row["refused"]) == (2, 1, 1, 1)
    assert row["mostly because"] == "nl.x is not simulated (1)"
    assert [line.split(": ")[1:3] for line in changes(before, after)] == [
        ["r a", "refused -> equal nl.x is not simulated"]
    ]


def test_the_reference_of_convolutions_is_a_convolution() -> None:
    rng = np.random.default_rng(1)
    x, w, bias = rng.random((1, 2, 5, 4)), rng.random((3, 2, 3, 3)), rng.random(3)
    direct = np.array(
        [[(x[0, :, i : i + 3, j : j + 3] * w[o]).sum() + bias[o] for j in range(2)] for o in range(3) for i in range(3)]
    )
    np.testing.assert_allclose(convolution(x, w, bias, 1)[0], direct.reshape(3, 3, 2))
    assert convolution(x, w, bias, 2).shape == (1, 3, 1, 1)


def test_the_command_keeps_outcomes_and_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "scripts.evidence.corpus.__main__.SOURCES",
        (lambda scratch: [Trial("somewhere", "a", lambda: (State.EQUAL, "0"))],),
    )
    assert main(["--only", "somewhere", "--jobs", "1", "--results", str(tmp_path / "corpus.json")]) == 0
    assert "| somewhere | 1 | 1 | 1 | 1 |" in capsys.readouterr().out
    assert [one.state for one in read(tmp_path / "corpus.json")] == [State.EQUAL]


def test_golden_results_beyond_the_results_type_are_no_reference() -> None:
    from scripts.evidence.corpus.nki_library import _agree

    found = [np.array([np.inf, 1.0], np.float16)]

    def validation(greatest: float) -> SimpleNamespace:
        golden = SimpleNamespace(golden={"out": np.array([greatest, 1.0])})
        return SimpleNamespace(
            golden_output=golden, absolute_accuracy=1e-5, relative_accuracy=0.02, accuracy_buffer_percent=0
        )

    with pytest.raises(Stopped, match="295700 exceed float16") as stopped:
        _agree(found, validation(295700.0), 0)
    assert stopped.value.state is State.RUNS
    assert not _agree(found, validation(2.0), 0)
