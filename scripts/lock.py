"""Write requirements.lock: the packages of a plain installation on this Python and platform, with their hashes.

``make lock`` runs it; ``pip install --require-hashes -r requirements.lock`` installs exactly these files.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"


def main() -> int:
    """Ask pip which packages it would install, and write them to requirements.lock. Return pip's exit code."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", str(ROOT)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.returncode
    python = ".".join(platform.python_version_tuple()[:2])
    lines = [
        f"# For Python {python} on {platform.system()} {platform.machine()}, made by `make lock`. Without acceld itself."
    ]
    for one in sorted(json.loads(done.stdout)["install"], key=lambda one: str(one["metadata"]["name"]).lower()):
        name, version = one["metadata"]["name"], one["metadata"]["version"]
        if name != "acceld":
            lines.append(f"{name}=={version} --hash=sha256:{one['download_info']['archive_info']['hashes']['sha256']}")
    LOCK.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
