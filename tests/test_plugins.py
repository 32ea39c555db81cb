"""Packages that add to acceld without touching it: used when they work, named when they do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties import one_in

ROOT = Path(__file__).parents[1]
EXAMPLE = Path(__file__).parent / "plugin_example"


def install(target: Path, source: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(target),
    ]
    subprocess.run([*command, str(source)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example package installed in it."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(EXAMPLE, folder / "source")
    install(folder / "site", folder / "source")
    return folder / "site"


def python(code: str, site: Path, tmp_path: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{site}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def acceld(words: list[str], site: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{site}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "acceld", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_backend_a_rule_a_workload_and_a_provider_come_from_an_installed_package(site: Path, tmp_path: Path) -> None:
    code = """
import asyncio, json
from pathlib import Path
from acceld import plugins
from acceld.config import DevicesConfig, EvaluateConfig, LlmConfig, ModelConfig
from acceld.evaluate.interface import EvaluationRequest, Workplace, started
from acceld.llm.client import CompletionRequest
from acceld.llm.model import connect
from acceld.llm.settings import ModelSettings
from acceld.model import Kernel
from acceld.nki.source.launches import Launch
from acceld.proposers.rules.proposer import rewrite, suggestions
from acceld.targets import DEVICE_OF, Choice, choose
from acceld.workloads.discovery import workload_folders

default = Choice("simulator", "nki_legacy", "trn1")
where = choose(default, chip="stone")
launch = Launch("beads")
site = suggestions("x + x", launch)[0]
kernel = Kernel("x + x", "beads", "kernel")
evaluator = plugins.named(DEVICE_OF["abacus"].evaluator)(
    Workplace(EvaluateConfig(), DevicesConfig(), Path(".")), "abacus"
)
async def main():
    async with started(evaluator):
        result = await evaluator.evaluate(EvaluationRequest(kernel, "double", "wood", "abacus"))
    model = connect(ModelSettings.from_config("m", ModelConfig(provider="parrot"), LlmConfig()))
    answer = await model.complete(CompletionRequest("planner", "m", "", "hello", 10))
    return result.profile.latency_us, answer.text
latency_us, text = asyncio.run(main())
print(json.dumps([where.backend, rewrite("x + x", launch, site, site.variants[0]), latency_us, text,
                  "double" in workload_folders(), len(plugins.broken())]))
"""
    assert json.loads(python(code, site, tmp_path)) == ["abacus", "x << 1", 5.0, "hello", True, 0]


def test_commands_show_what_was_added(site: Path, tmp_path: Path) -> None:
    found = json.loads(acceld(["doctor", "--json"], site, tmp_path).stdout)["findings"]
    assert {"name": "abacus", "state": "ok", "text": "ten rods", "todo": ""} in found
    assert any(
        one["name"] == "plug-in" and "double_by_shift of acceld-example-plugin 1.0" in one["text"] for one in found
    )
    assert "abacus" in acceld(["optimize", "--help"], site, tmp_path).stdout


def test_a_broken_plug_in_is_named_and_stops_nothing(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    (broken / "bad").mkdir(parents=True)
    (broken / "bad" / "__init__.py").write_text("raise RuntimeError('no licence')\n")
    (broken / "wrong.py").write_text("DEVICE = 'a string'\n")
    info = broken / "bad-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 2.0\n")
    points = "[acceld.backends]\nbad = bad:DEVICE\nwrong = wrong:DEVICE\n[acceld.rules]\nnone = wrong:DEVICE\n"
    points += "[acceld.workloads]\nlost = wrong:DEVICE\n[acceld.providers]\nmute = wrong:DEVICE\n"
    (info / "entry_points.txt").write_text(points)
    assert acceld(["workloads"], broken, tmp_path).returncode == 0
    done = acceld(["doctor", "--json"], broken, tmp_path)
    texts = [one["text"] for one in json.loads(done.stdout)["findings"] if one["name"] == "plug-in"]
    assert any("bad of bad 2.0 in acceld.backends is not used: RuntimeError: no licence" in text for text in texts)
    assert any("wrong of bad 2.0 in acceld.backends is not used" in text and "Device" in text for text in texts)
    assert any("lost of bad 2.0 in acceld.workloads is not used: there is no folder" in text for text in texts)
    profile = acceld(["profile", "silu", "--latency-only"], broken, tmp_path)
    assert profile.returncode == 0, profile.stderr


@pytest.mark.parametrize("device", one_in(3, ["cpu", "cuda", "neuron"]))
def test_a_device_is_gone_with_its_folder(device: str, tmp_path: Path) -> None:
    for name in ("acceld", "store", "tui", "workloads", "prompts"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, symlinks=True)  # what is compiled already, too
    shutil.rmtree(tmp_path / "copy" / "acceld" / "devices" / device)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "copy")}
    environment["ACCELD_DATA"] = str(tmp_path / "copy")
    code = """
from acceld.cli.main import main
for words in ("doctor --json", "workloads", "profile silu --latency-only", "suggest silu"):
    assert main(words.split()) == 0, words
import acceld.targets as t
print(t.__file__, *(d.name for d in t.ALL_DEVICES))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, *left = done.stdout.splitlines()[-1].split()
    assert file.startswith(str(tmp_path)) and left == [one for one in ("cpu", "cuda", "neuron") if one != device]
