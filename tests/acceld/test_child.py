"""Children run acceld and the interpreter's own packages, never a module of the folders that the user works in."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import acceld
from acceld.child import child

PACKAGE = Path(acceld.__file__).parent
STARTERS = frozenset(
    "run Popen call check_call check_output getoutput getstatusoutput create_subprocess_exec create_subprocess_shell system "
    "popen posix_spawn posix_spawnp execv execve execvp execvpe execl execle execlp execlpe spawnv spawnve spawnl".split()
)
"""Functions that start a program, of ``subprocess``, ``asyncio`` and ``os``."""
OTHER_PROGRAMS = {
    "cli/checks/branch.py": "git",
    "cli/checks/winners.py": "git",
    "cli/commands/service.py": "systemctl",
    "cli/pager.py": "the person's pager",
    "cli/remote.py": "ssh",
    "daemon/hooks.py": "the person's hooks",
    "devices/cpu/driver.py": "the C compiler",
    "devices/cpu/kernels.py": "the C compiler",
    "devices/cpu/objects.py": "objdump",
    "devices/cpu/peaks.py": "the C compiler",
    "devices/cuda/machine.py": "nvidia-smi and the like",
    "devices/neuron/compile_jail.py": "AWS's interpreter, in the folder /",
    "devices/neuron/runtime/cores.py": "neuron-ls",
    "devices/neuron/runtime/scripts/runner.py": "AWS's profiler",
    "devices/neuron/runtime/worker.py": "AWS's interpreter with a script beside worker.py, which stands first on the path",
    "devices/neuron/tools/detection.py": "other interpreters; their code drops the current folder from the path first",
    "devices/neuron/tools/monitor.py": "neuron-monitor",
    "devices/neuron/tools/trial.py": "AWS's tools",
    "evaluate/sandbox/probes.py": "a program that does not exist",
    "proposers/command.py": "the person's program",
    "tui/terminal.py": "the person's editor",
    "watch/tiers.py": "git",
}
"""Modules that start a program which is not this interpreter, and which program it is."""
EXERCISED = frozenset(
    {
        "cli/commands/service.py",
        "cli/web_server.py",
        "cluster/remote.py",
        "daemon/launch.py",
        "devices/cuda/driver.py",
        "drafts.py",
        "evaluate/sandbox/ladder.py",
        "evaluate/sandbox/process.py",
        "lowering/aten/requests.py",
    }
)
"""Modules whose children :data:`DRIVER` starts."""

DRIVER = """
import asyncio, json, os, shlex, socket, subprocess, sys
from importlib.util import find_spec
from pathlib import Path

from acceld.child import child
from acceld.cli import web_server
from acceld.cli.commands import service
from acceld.client import Client
from acceld.cluster.remote import RayHosts, Setup, environment
from acceld.config import Config
from acceld.daemon.launch import launch
from acceld.devices.cuda.driver import start_library
from acceld.devices.neuron.compile_jail import _paths_of
from acceld.devices.neuron.tools.detection import find_neuron
from acceld.drafts import reference_facts
from acceld.errors import DeviceError
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import Zygote
from acceld.home import Home
from acceld.lowering.aten import requests

here, users = Path(sys.argv[1]), Path(sys.argv[2])
os.chdir(here)
os.environ["PYTHONPATH"] = os.pathsep.join(("", ".", "below", os.environ["ELSEWHERE"]))
home = Home(users / ".acceld")

launch(home)
assert Client(home).get("/v1/hello")["version"]

class Served:
    def __init__(self, command, port):
        self.command = command
    def serve(self):
        ended = subprocess.run(self.command + " --help", shell=True, capture_output=True, text=True)
        assert "usage" in ended.stdout, ended.stderr
web_server.GuardedServer = Served
web_server.serve(str(home.path), 1, None)

unit = [line.split("=", 1) for line in service.unit(home).splitlines() if "=" in line]
given = dict(value.split("=", 1) for name, value in unit if name == "Environment")
assert {"PYTHONPATH", "XDG_STATE_HOME"} <= given.keys()
unit = dict(unit)
words = shlex.split(unit["ExecStart"])
ended = subprocess.run([*words[:4], "--help"], cwd=unit["WorkingDirectory"], env=given, capture_output=True)
assert b"usage" in ended.stdout, ended.stderr

(here / "reference.py").write_text("import numpy as np\\ndef get_inputs(): return [np.ones(4)]\\ndef forward(x): return x\\n")
assert reference_facts(here / "reference.py").outputs[0].shape == (4,)

requests.importlib.util.find_spec, found = (lambda name: name), requests.importlib.util.find_spec
(refused,) = requests.module_references([requests.ModuleRequest("absent_package:Class")])
missing = "torch" if found("torch") is None else "absent_package"
assert f"No module named '{missing}'" in refused.why, refused.why
requests.importlib.util.find_spec = found

async def sandbox():
    zygote = Zygote({"run": "elsewhere:run"}, level=Level.L1)
    await zygote.start()
    outcome, reply = await zygote.run("run", b"", Jail(wall_s=60), modules=["numpy", "acceld.nki"])
    with reply:
        found = json.loads(reply.read(10_000))
    await zygote.stop()
    await probe_level(Level.L1)
    return found
path = asyncio.run(sandbox())
assert not {str(here), str(users), str(here / "below"), ""} & set(path), path

ours, theirs = socket.socketpair()
bridge = child("acceld.cluster.bridge", str(theirs.fileno()), environment=environment())
running = subprocess.Popen(bridge.command, env=bridge.environment, cwd="/", pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
theirs.close()
ours.close()
said = running.communicate()[1].decode()
assert (find_spec("ray") is not None) or "No module named 'ray'" in said, said

try:
    start_library("/nowhere/libcuda.so.1")
except DeviceError as error:
    assert "cannot open shared object" in error.message, error

find_neuron((sys.executable,))
_paths_of(sys.executable)
print("done")
"""


STARTING = re.compile(
    r"\b(subprocess|asyncio|os|pty|multiprocessing|ProcessPoolExecutor|ForkServer|acceld\.child|executable|_base_executable)\b"
)
"""A word of every module that could start a program."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the package that could start a program, with its tree."""
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        for name in names:
            path = Path(folder) / name
            text = path.read_text(encoding="utf-8") if path.suffix == ".py" else ""
            if STARTING.search(text):
                yield str(path.relative_to(PACKAGE)), ast.parse(text)


def starts(tree: ast.Module) -> Iterator[str]:
    """Yield the functions with which a module starts programs."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in STARTERS
            and isinstance(node.value, ast.Name | ast.Attribute)
        ):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if owner in ("subprocess", "asyncio", "os", "pty") and (owner, node.attr) != ("asyncio", "run"):
                yield f"{owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "os", "pty", "multiprocessing"):
            yield from (f"{node.module}.{one.name}" for one in node.names if one.name in (*STARTERS, "Process"))
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in ("ProcessPoolExecutor", "ForkServer"):
                yield name


def test_every_module_that_starts_python_uses_the_one_function() -> None:
    using, starting, naming = set[str](), set[str](), set[str]()
    for name, tree in modules():
        if name.startswith("devices/neuron/runtime/scripts/facilities"):
            continue  # runs in the compiler's jail, to find what that jail allows
        if list(starts(tree)):
            starting.add(name)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "acceld.child"
                and "child" in {n.name for n in node.names}
            ):
                using.add(name)
            if isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable"):
                naming.add(name)
    assert starting - using <= set(OTHER_PROGRAMS), "use acceld.child.child, or say here which program it is"
    assert set(OTHER_PROGRAMS) <= starting
    assert naming <= {"child.py", "devices/neuron/backend.py", "devices/neuron/tools/toolchain.py"} | {
        "devices/neuron/compile_jail.py"
    }, "a child of this interpreter is described by acceld.child.child"
    assert using == EXERCISED, "DRIVER starts the children of each of them"


def fill(folder: Path, marker: Path) -> None:
    """Write a module of each name that a child could import; each says that it ran, and breaks the start."""
    folder.mkdir()
    others = "acceld aiohttp msgspec numpy ml_dtypes textual textual_serve sqlite_utils ray sitecustomize usercustomize"
    text = f"open({str(marker)!r}, 'a').write(__file__ + chr(10))\nraise SystemExit('a module of the folder ran')\n"
    for name in (*sys.stdlib_module_names, *others.split()):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)


def test_no_child_imports_from_the_current_or_the_users_folder(tmp_path: Path) -> None:
    marker, here, users, elsewhere = (tmp_path / name for name in ("marker", "here", "users", "elsewhere"))
    fill(here, marker)
    fill(users, marker)
    fill(here / "below", marker)
    elsewhere.mkdir()
    (elsewhere / "elsewhere.py").write_text(
        "import json, os, sys\ndef run(request, reply): os.write(reply, json.dumps(sys.path).encode())\n"
    )
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    environment = os.environ | {"ELSEWHERE": str(elsewhere), "XDG_RUNTIME_DIR": str(tmp_path)}
    try:
        ended = subprocess.run(
            [sys.executable, "-P", str(driver), str(here), str(users)],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert not marker.exists(), marker.read_text()
        assert ended.stdout.strip().endswith("done"), ended.stderr
    finally:
        stop = child("acceld", "stop", "--home", str(users / ".acceld"), environment=environment)
        subprocess.run(stop.command, env=stop.environment, cwd="/", check=False, capture_output=True)


def test_an_install_by_pythonpath_works(tmp_path: Path) -> None:
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    code = (
        "import json, subprocess\nfrom acceld.child import child\n"
        "one = child('-c', 'import acceld, numpy; print(acceld.__file__)')\n"
        "print(subprocess.run(one.command, env=one.environment, capture_output=True, text=True, check=True).stdout)"
    )
    environment = {"PYTHONPATH": os.pathsep.join((str(PACKAGE.parent), *packages))}
    bare = [str(sys._base_executable), "-P", "-c", code]  # type: ignore[attr-defined]
    ended = subprocess.run(bare, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == str(PACKAGE / "__init__.py"), ended.stderr


def test_the_child_runs_the_acceld_of_its_parent(tmp_path: Path) -> None:
    other = tmp_path / "site"
    (other / "acceld").mkdir(parents=True)
    (other / "acceld" / "__init__.py").write_text("raise SystemExit('another acceld')")
    (other / "acceld" / "child.py").write_text(Path(PACKAGE / "child.py").read_text())
    (other / "acceld" / "__main__.py").write_text("")
    start = child("acceld", "--version")
    ended = subprocess.run(start.command, env=start.environment, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("acceld")
    moved = [word.replace(str(PACKAGE / "child.py"), str(other / "acceld" / "child.py")) for word in start.command]
    ended = subprocess.run(moved, env=start.environment, capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "another acceld"


@pytest.mark.parametrize("given", ["", ":", ".:below", "/a::b:/c"])
def test_relative_entries_of_pythonpath_are_not_passed_on(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PYTHONPATH", given)
    start = child("acceld", environment={"PYTHONPATH": "/not/the/parents", "HOME": "/h"})
    kept = json.dumps(start.environment)
    assert kept == json.dumps({"HOME": "/h"} | ({"PYTHONPATH": "/a:/c"} if "/a" in given else {}))
