"""``acceld service``: install a systemd user service that keeps a daemon running for a state folder."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from acceld.child import PATH, child
from acceld.cli.arguments import add_json
from acceld.cli.output import answer, say
from acceld.errors import UsageError
from acceld.home import Home, find_home

KEPT = (PATH, "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Environment variables whose present values the unit file keeps: they say where acceld finds programs, settings, trust
records and caches.
"""
UNIT = """\
[Unit]
Description=acceld for {home}
After=default.target

[Service]
Type=simple
WorkingDirectory={folder}
{environment}ExecStart={start}
Restart=on-failure
RestartSec=5
TimeoutStopSec=90
KillMode=mixed
UMask=0077

[Install]
WantedBy=default.target
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("what", choices=("install", "uninstall", "status", "show"), help="show prints the unit file")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write or remove the unit file, and enable or disable the service if systemd runs for this user."""
    home = find_home(arguments.home)
    path = unit_path(home)
    if arguments.what == "show":
        print(unit(home), end="")
        return 0
    if arguments.what == "install":
        home.prepare()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit(home), encoding="utf-8")
        enabled = systemctl("daemon-reload") and systemctl("enable", "--now", path.name)
        done = f"wrote {path}"
        say(
            f"{path.name} runs now"
            if enabled
            else f"systemd does not run for this user; on a system where it runs: systemctl --user enable --now {path.name}"
        )
        say("to keep it running after logout: loginctl enable-linger")
    elif arguments.what == "uninstall":
        if not path.exists():
            raise UsageError(f"there is no service for {home.path}", hint="acceld service install makes one")
        systemctl("disable", "--now", path.name)
        path.unlink()
        done = f"removed {path}"
    else:
        done = f"{path} {'is installed' if path.exists() else 'is not installed'}"
    return answer(arguments, {"unit": str(path), "installed": path.exists()}, done)


def unit_path(home: Home) -> Path:
    """Return the path of the unit file for a state folder."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    digest = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:8]
    return base / "systemd" / "user" / f"acceld-{digest}.service"


def unit(home: Home) -> str:
    """Return the text of the unit file for a state folder."""
    start = child("acceld", "start", "--foreground", "--home", str(home.path))
    kept = {name: start.environment[name] for name in KEPT if start.environment.get(name)}
    for text in (*start.command, *kept.values()):
        if not text.isprintable():
            raise UsageError(f"systemd can not take the path {text!r}", hint="use a path of printable characters")
    lines = "".join(f"Environment={_quoted(f'{name}={value}', '%')}\n" for name, value in kept.items())
    home_path, folder = (str(path).replace("%", "%%") for path in (home.path, home.path.parent))
    command = " ".join(_quoted(word, "%$") for word in start.command)
    return UNIT.format(home=home_path, folder=folder, start=command, environment=lines)


def _quoted(word: str, doubled: str) -> str:
    """Return a word in quotes for a unit file. Characters in ``doubled`` are written twice, because systemd
    would expand them.
    """
    for special in "\\" + doubled:
        word = word.replace(special, 2 * special)
    return '"' + word.replace('"', '\\"') + '"' if any(c in word for c in " \"';") else word


def systemctl(*words: str) -> bool:
    """Run a command of the user's systemd, and return True if it succeeded."""
    if shutil.which("systemctl") is None:
        return False
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, check=False, timeout=30)
    return done.returncode == 0
