"""Write runs as a trace set, a folder for flashinfer-bench: definitions, workloads, solutions and traces.

A workload that names a public definition (``[flashinfer]`` in workload.toml) also gets a definition, with acceld's
reference as code, and a workload record. Index arrays are stored as safetensors, because random numbers would be no
valid indices.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from acceld.parsing import parse
from acceld.report.datasets import Material
from acceld.report.exchange import solutions, traces
from acceld.workloads import Argument, Workload
from acceld.workloads.inputs import draw

SEED = 0
"""Seed of the stored index arrays."""
_SAFETENSORS = {"int32": "I32", "int64": "I64", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def trace_set(materials: Iterable[Material], public: Mapping[str, Workload]) -> dict[str, bytes]:
    """Return the content of every file of the folder, as a dict by path.

    ``public`` has workloads by name. A workload without a public definition adds only solutions and traces.
    """
    files: dict[str, bytes] = {}
    lines: dict[str, list[dict[str, Any]]] = {}
    for material in materials:
        found = public.get(material.run.spec.workload)
        known = found if found is not None and found.definition is not None else None
        if known is not None:
            files |= _declared(known)
        for row in solutions(material, known):
            files[f"solutions/{row['definition']}/{row['name']}.json"] = _json(row)
        for row in traces(material, known):
            if known is not None:
                row["workload"] = workload_record(known)
            lines.setdefault(f"traces/{row['definition']}.jsonl", []).append(row)
    for path, rows in lines.items():
        files[path] = b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
    return files


def _declared(workload: Workload) -> dict[str, bytes]:
    """Return the files that a public workload adds, as a dict by path: definition, workload record and index arrays."""
    public = workload.definition
    assert public is not None
    files = {f"definitions/{public.op_type}/{public.name}.json": _json(definition_of(workload))}
    row = {"definition": public.name, "workload": workload_record(workload), "solution": None, "evaluation": None}
    files[f"workloads/{public.op_type}/{public.name}.jsonl"] = json.dumps(row).encode() + b"\n"
    arrays = _index_arrays(workload)
    if arrays:
        files[_blob(workload)] = _safetensors(arrays)
    return files


def definition_of(workload: Workload) -> dict[str, Any]:
    """Return a workload's public definition in flashinfer-bench's format. Raise ValueError if the workload names no public
    definition.
    """
    public = workload.definition
    if public is None:
        raise ValueError(f"workload {workload.name} names no public definition")
    axes = {
        name: {"type": "var"} if name in public.free else {"type": "const", "value": extent}
        for name, extent in public.axes.items()
    }
    inputs = {
        one.name: {"shape": None, "dtype": "float32"}
        if one.is_scalar
        else {"shape": list(public.shapes[one.name]), "dtype": one.dtype}
        for one in workload.arguments
    }
    outputs = {one.name: {"shape": list(public.shapes[one.name]), "dtype": one.dtype} for one in workload.outputs}
    return {
        "name": public.name,
        "op_type": public.op_type,
        "axes": axes,
        "inputs": inputs,
        "outputs": outputs,
        "reference": _reference(workload),
        "description": workload.description,
        "tags": [f"acceld:{tag}" for tag in sorted(workload.tags)],
    }


def workload_record(workload: Workload) -> dict[str, Any]:
    """Return the workload record: the sizes of the free axes, and where each input comes from."""
    public = workload.definition
    assert public is not None
    stored = {one.name for one in _indices(workload)}
    inputs: dict[str, Any] = {}
    for one in workload.arguments:
        if one.value is not None:
            inputs[one.name] = {"type": "scalar", "value": one.value}
        elif one.name in stored:
            inputs[one.name] = {"type": "safetensors", "path": _blob(workload), "tensor_key": one.name}
        else:
            inputs[one.name] = {"type": "random"}
    axes = {name: extent for name, extent in public.axes.items() if name in public.free}
    return {"uuid": f"acceld-{workload.name}-{workload.hash[:12]}", "axes": axes, "inputs": inputs}


def _reference(workload: Workload) -> str:
    """Return the reference's source text with a function ``run`` as flashinfer-bench calls it.

    The function computes in float32, and returns the outputs in their declared dtypes.
    """
    assert workload.reference is not None
    names = [one.name for one in workload.arguments]
    wide = [
        f"{one.name}.float()" if not one.is_scalar and "float" in one.dtype else one.name for one in workload.arguments
    ]
    dtypes = ", ".join(f"torch.{one.dtype}" for one in workload.outputs)
    lines = [
        workload.reference.read_text(encoding="utf-8").rstrip(),
        "",
        "",
        f"def run({', '.join(names)}):",
        "    import torch",
        "",
        f"    result = forward_torch({', '.join(wide)})",
        "    outputs = result if isinstance(result, tuple) else (result,)",
        f"    typed = tuple(one.to(dtype) for one, dtype in zip(outputs, ({dtypes},)))",
        "    return typed if len(typed) > 1 else typed[0]",
        "",
    ]
    text = "\n".join(lines)
    parse(text)
    return text


def _indices(workload: Workload) -> list[Argument]:
    """Return the arguments whose values must be stored: fixed whole numbers, such as indices. All other arguments can
    be drawn at random.
    """
    return [
        one
        for one in workload.arguments
        if one.distribution is not None and one.distribution.fixed and one.dtype in _SAFETENSORS
    ]


def _index_arrays(workload: Workload) -> dict[str, Any]:
    import numpy as np

    rng, drawn = np.random.default_rng(SEED), dict[str, Any]()
    for one in _indices(workload):
        drawn[one.name] = draw(one, rng, drawn)
    return drawn


def _blob(workload: Workload) -> str:
    public = workload.definition
    assert public is not None
    return f"blob/workloads/{public.op_type}/{public.name}/{workload.name}.safetensors"


def _safetensors(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays in the safetensors format: length of the header, header in JSON, elements."""
    header: dict[str, Any] = {}
    body = b""
    for name, array in arrays.items():
        data = array.tobytes()
        place = [len(body), len(body) + len(data)]
        header[name] = {"dtype": _SAFETENSORS[array.dtype.name], "shape": list(array.shape), "data_offsets": place}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def _json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
