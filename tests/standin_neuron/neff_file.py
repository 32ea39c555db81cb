"""NEFFs of the stand-in in the documented layout: a header, and a tarball with the variables of one subgraph.

STANDIN_NAMES changes the outputs: ``python`` names them as a kernel's variables, ``swapped`` lists them the other way
round, ``missing`` leaves the last one out. STANDIN_LNC is a logical core size that the compiler used instead of the size
it was given. STANDIN_NEEDS is what the compiler asks of its system.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tarfile
from typing import Any

HEADER = struct.Struct("<QQQQQ128sI32s16s256sI64sQI468x")


def pack(inputs: list[tuple[str, int]], outputs: list[tuple[str, int]], *, lnc: int = 1, **more: Any) -> bytes:
    """Return a NEFF; inputs and outputs are lists of names and bytes."""
    use_system()
    names = os.environ.get("STANDIN_NAMES", "")
    if names == "python":
        outputs = [(f"result.{7 * n}_sg00", size) for n, (_, size) in enumerate(outputs)]
    elif names == "swapped":
        outputs = outputs[::-1]
    elif names == "missing":
        outputs = outputs[:-1]
    lnc = int(os.environ.get("STANDIN_LNC", lnc))
    reported = [(name, size, "input") for name, size in inputs] + [(name, size, "output") for name, size in outputs]
    variables = {name: {"type": kind, "var_id": n, "size": size} for n, (name, size, kind) in enumerate(reported)}
    record = {"standin": 1, "inputs": [n for n, _ in inputs], "outputs": [n for n, _ in outputs], "lnc": lnc, **more}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (("sg00/def.json", {"var": variables}), ("standin.json", record)):
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data = buffer.getvalue()
    return HEADER.pack(2, 1024, len(data), 2, 0, b"", lnc, b"", b"", b"standin", lnc, b"", 0, lnc) + data


def unpack(path: Any) -> dict[str, Any]:
    """Return the record of a NEFF, or of a hand-made one that is JSON alone."""
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(b"{"):
        return {"outputs": ["output_0"], **json.loads(data)}
    with tarfile.open(fileobj=io.BytesIO(data[1024:])) as archive:
        member = archive.extractfile("standin.json")
        assert member is not None
        record: dict[str, Any] = json.load(member)
        return record


def outputs_of(program: str) -> list[tuple[str, int]]:
    """Return names and bytes of the outputs of a program in base64."""
    import base64
    import math

    from acceld.nki.ir.codec import decode
    from acceld.nki.ir.operations import DTYPE_BYTES

    read = decode(base64.b64decode(program))
    made = [read.buffers[number] for number in read.outputs]
    return [(f"output_{n}", math.prod(one.shape) * DTYPE_BYTES[one.dtype]) for n, one in enumerate(made)]


def say(text: str) -> None:
    """Print a tool's output. STANDIN_NOISE can put warnings before the output, and print all on stderr."""
    noise = os.environ.get("STANDIN_NOISE", "")
    out = sys.stderr if "stderr" in noise else sys.stdout
    if "warnings" in noise:
        print("2026-Nov-22 21:00:00.0001 1:1 [WARN] driver [2] is older than the tools {2.20}", file=out)
    print(text, file=out)


def add_one(context: int) -> int:
    """Do some work in a child of the pool."""
    return context + 1


def use_system() -> None:
    """Use the system facilities that compilers use, as far as the test asks for it."""
    needs = os.environ.get("STANDIN_NEEDS", "").split(",")
    if "locks" in needs:
        import multiprocessing

        multiprocessing.get_context("fork").Lock()
    if "pool" in needs:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            assert list(pool.map(add_one, range(3))) == [1, 2, 3]
    if "sockets" in needs:
        import socket

        left, right = socket.socketpair()
        left.sendall(b"x")
        assert right.recv(1) == b"x"
    if "user" in needs:
        import getpass
        import pwd

        assert getpass.getuser() or True
        pwd.getpwuid(os.getuid())
    if "proc" in needs:
        open("/proc/self/status").close()
        open("/proc/meminfo").close()
    if "sys" in needs:
        open("/sys/devices/system/cpu/online").close()
    if "shared memory" in needs:
        with open("/dev/shm/standin", "wb") as file:
            file.write(bytes(1 << 20))
    if "address space" in needs:
        import mmap

        mmap.mmap(-1, 16 << 30).close()
    if "memfd" in needs:
        os.close(os.memfd_create("standin"))
    if "home" in needs:
        open(os.environ["STANDIN_HOME_FILE"]).close()
