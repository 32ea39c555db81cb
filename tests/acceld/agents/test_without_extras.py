"""In a plain installation, a feature that needs an optional package says so, and everything else runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLOCKED = """
import sys
for name in ("mcp", "mcp_types", "pydantic", "uvicorn", "opentelemetry"):
    sys.modules[name] = None
import acceld.agents.toolbox, acceld.daemon.service, acceld.proposers.command, acceld.reward
from acceld.cli.main import COMMANDS, main, parser_of
for name in COMMANDS:
    parser_of(name)
sys.exit(main(["mcp"]))
"""


def test_every_command_is_there_and_mcp_names_its_extra(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install 'acceld[mcp]'" in done.stderr
