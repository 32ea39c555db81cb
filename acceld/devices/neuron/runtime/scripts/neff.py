"""Read from a NEFF the logical core size, and the names and sizes of its inputs and outputs.

Layout as AWS documents it ("Work with NEFF files"): a header of 1024 bytes, then a tarball with a folder for
each subgraph, whose ``def.json`` lists variables. Runs on Python >= 3.8 with only the standard library.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from typing import Any, NamedTuple

HEADER_BYTES = 1024
HEADER = struct.Struct("<QQQQQ128sI32s16s256sI64sQI468x")
"""Layout of a NEFF's header. The fields are: package version, bytes of header and data, version, build, cores, hash,
id, name, cores that were asked for, cores of a node, features, LNC.
"""
_MAX_DEFINITION = 64 << 20


class Facts(NamedTuple):
    """The facts that a NEFF states about itself. ``lnc`` is the logical core size; 0 if the file does not state it.

    ``inputs`` and ``outputs`` have names and numbers of bytes, in the order of the tensors' ids.
    """

    lnc: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


NOTHING = Facts(0, (), ())


def facts_of(data: bytes) -> Facts:
    """Return the facts in a NEFF; :data:`NOTHING` if the NEFF does not have the documented layout.

    Inputs and outputs are empty if the definition of the first subgraph can not be read.
    """
    if len(data) < HEADER_BYTES:
        return NOTHING
    fields = HEADER.unpack(data[:HEADER_BYTES])
    if fields[1] != HEADER_BYTES:
        return NOTHING
    lnc = fields[-1]
    try:
        variables = _variables(data[HEADER_BYTES:])
        reported = sorted(variables.items(), key=lambda item: int(item[1]["var_id"]))
        inputs = tuple((name, int(one["size"])) for name, one in reported if one.get("type") == "input")
        outputs = tuple((name, int(one["size"])) for name, one in reported if one.get("type") == "output")
    except (tarfile.TarError, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return Facts(lnc, (), ())
    return Facts(lnc, inputs, outputs)


def _variables(data: bytes) -> dict[str, Any]:
    """Return the variables of the first subgraph by name; empty if the archive has no definition of that subgraph."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.name.lstrip("./") == "sg00/def.json" and member.size <= _MAX_DEFINITION:
                file = archive.extractfile(member)
                return json.loads(file.read())["var"] if file is not None else {}
    return {}


def pair(wanted: list[dict[str, Any]], reported: list[tuple[str, int]], what: str) -> list[str]:
    """Return the name that the NEFF gives to each tensor of the kernel.

    Tensors are matched by name if all names and sizes agree, else by order and size, else by size alone if every size
    occurs once. Raise ValueError, with both lists of tensors, if none of these three ways matches all tensors.
    ``wanted`` has name, nbytes, dtype and shape; ``reported`` has names and numbers of bytes; ``what`` (``inputs`` or
    ``outputs``) is for the message.
    """
    sizes = dict(reported)
    if len(wanted) == len(reported) and all(sizes.get(one["name"]) == one["nbytes"] for one in wanted):
        return [one["name"] for one in wanted]
    if [one["nbytes"] for one in wanted] == [size for _, size in reported]:
        return [name for name, _ in reported]
    by_size: dict[int, list[str]] = {}
    for name, size in reported:
        by_size.setdefault(size, []).append(name)
    alone = all(len(names) == 1 for names in by_size.values())
    if alone and sorted(sizes.values()) == sorted(one["nbytes"] for one in wanted):
        return [by_size[one["nbytes"]][0] for one in wanted]
    mine = ", ".join("{} {}{} of {} bytes".format(o["name"], o["dtype"], o["shape"], o["nbytes"]) for o in wanted)
    theirs = ", ".join(f"{name} of {size} bytes" for name, size in reported) or "none"
    raise ValueError(f"{what} do not fit: the kernel has {mine}; the NEFF has {theirs}")
