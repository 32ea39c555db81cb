"""The log is one JSON object a line, private, bounded, and free of terminal escapes."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceld.cli.commands.logs import since, tail
from acceld.daemon import logs
from acceld.daemon.secrets import redactor


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore the root logger after the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)


def test_lines_are_json_without_keys_or_escapes(tmp_path: Path) -> None:
    logs.log_to(tmp_path / "acceld.log", "info", also_stderr=False, redact=redactor(["canary-0123456789"]))
    logging.getLogger("x").warning("clear \x1b[2J \x9b31m canary-0123456789\nnext\u202e")
    logging.getLogger("x").debug("not told")
    try:
        raise ValueError("canary-0123456789")
    except ValueError:
        logging.getLogger("x").exception("failed")
    lines = [json.loads(line) for line in (tmp_path / "acceld.log").read_text().splitlines()]
    assert [line["level"] for line in lines] == ["warning", "error"]
    assert lines[0]["text"].startswith("clear \\x1b[2J \\x9b31m [key ")
    assert "ValueError" in lines[1]["text"]
    assert "canary" not in json.dumps(lines)
    assert "\u202e" not in lines[0]["text"]


def test_files_are_rotated_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    path = tmp_path / "acceld.log"
    logs.log_to(path, "info", also_stderr=False)
    for number in range(200):
        logging.getLogger("x").info("line %d", number)
    files = sorted(tmp_path.iterdir())
    assert len(files) == logs.FILES + 1
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert sum(file.stat().st_size for file in files) <= 2000 * (logs.FILES + 1)
    assert json.loads(tail(path, 1)[0])["text"] == "line 199"
    assert len(tail(path, 30)) == 30
    place = path.stat().st_size
    logging.getLogger("x").info("after")
    lines, _ = since(path, place)
    assert json.loads(lines[-1])["text"] == "after"
