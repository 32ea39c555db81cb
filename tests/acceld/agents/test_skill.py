"""The skill for coding agents is installed where agents look, names existing tools, and its commands work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acceld import config
from acceld.cli.main import COMMANDS, main
from tests.acceld.agents.conftest import SLOW

SKILL = Path(__file__).parents[3] / "skills" / "acceld"
REFERENCE = re.findall(r"```python\n(.*?)```", (SKILL / "examples.md").read_text(encoding="utf-8"), re.DOTALL)[0]


def lines(name: str) -> list[str]:
    """Return every command of a page, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", (SKILL / name).read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_it_is_installed_current_and_never_over_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert main(["skill", "install", "--for", "kiro"]) == 0
    installed = tmp_path / ".kiro" / "skills" / "acceld"
    assert (installed / "SKILL.md").read_text().startswith("---\nname: acceld\ndescription: ")
    (installed / "examples.md").write_text("old")
    assert main(["skill", "install", "--for", "kiro"]) == 0
    assert (installed / "examples.md").read_text() == (SKILL / "examples.md").read_text()
    assert main(["skill", "install", "--for", "kiro"]) == 0
    assert "is current" in capsys.readouterr().err
    assert main(["skill", "install", "--user"]) == 0
    assert (tmp_path / "home" / ".claude" / "skills" / "acceld" / "SKILL.md").is_file()
    (tmp_path / "mine" / "acceld").mkdir(parents=True)
    (tmp_path / "mine" / "acceld" / "SKILL.md").write_text("---\nname: other\n---\n")
    assert main(["skill", "install", "--to", "mine"]) == 2
    assert "is not acceld's skill" in capsys.readouterr().err
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "acceld").symlink_to(installed)
    assert main(["skill", "install", "--to", "linked"]) == 2


def test_it_names_tools_and_commands_that_there_are() -> None:
    pytest.importorskip("mcp")
    from acceld.agents.places import Places
    from acceld.agents.server import build
    from acceld.agents.toolbox import Toolbox
    from acceld.home import Home

    box = Toolbox(Home(Path("/nowhere")), Places((Path("/nowhere"),), config.Config()))
    tools = {tool.name for tool in build(box)._tool_manager.list_tools()}
    text = (SKILL / "SKILL.md").read_text(encoding="utf-8")
    table = text.partition("## Which tool")[2].partition("## Order")[0]
    named = set(re.findall(r"`(\w+)`", table)) - {"strict"}
    assert named <= tools
    assert set(re.findall(r"`acceld (\w+)", table)) <= set(COMMANDS)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", ["SKILL.md", "examples.md"])
def test_its_commands_work_in_their_order(page: str, project: Path) -> None:
    (project / "reference.py").write_text(REFERENCE)
    for line in lines(page):
        words = shlex.split(line)
        assert words[0] == "acceld"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=project,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        if "--apply" in words:
            assert (project / "mine.py").read_text() != SLOW
