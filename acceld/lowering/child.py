"""Lower a reference in a process of its own: tracing calls a person's code, and replaces numpy's constructors meanwhile.

``python -m acceld.lowering.child REF.py`` reads a request from its standard input and answers with one line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acceld.lowering.graph import NotLowered
from acceld.lowering.kernels import LARGEST, Pieces, lowered, work
from acceld.lowering.loops import vectorized
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import SPELLINGS, printed_by_shape


def answer(path: Path, shapes: Sequence[dict[str, Any]], plainer: Sequence[dict[str, int]] = ()) -> dict[str, Any]:
    """Return the kernel of each API, or why there is none, and the work of the reference at the first of ``shapes``.
    ``plainer`` asks for further kernels of each API, with pieces of at most these sizes.

    Each shape has ``arguments`` and ``output_shapes``. Arguments have ``name`` and ``value``, or ``name``, ``shape``,
    ``dtype`` and the kernel's shape as ``kernel_shape``; ``output_shapes`` are the kernel's. The reference is traced at
    each shape, so a branch on shapes goes into the kernel.
    """
    sys.dont_write_bytecode = True  # a person's folder gets no __pycache__
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = {"kernels": {}, "refused": {}, "plainer": {}}
    traces = []
    try:
        for shape in shapes:
            given = [
                (a["name"], a["value"] if a.get("value") is not None else (tuple(a["shape"]), a["dtype"]))
                for a in shape["arguments"]
            ]
            traces.append((shape, [name for name, _ in given], vectorized(traced(module.forward, path, given))))
    except NotLowered as error:
        return found | {"refused": dict.fromkeys(SPELLINGS, str(error))}
    products, others, moved = work(traces[0][2])
    found["work"] = {"matmul_flops": products, "vector_flops": others, "hbm_bytes": moved}

    def kernel(api: str, pieces: Pieces) -> str:
        made = []
        for shape, parameters, graph in traces:
            own = {a["name"]: tuple(a["kernel_shape"]) for a in shape["arguments"] if a.get("kernel_shape")}
            one = lowered(
                graph,
                api,
                doc=_doc(module),
                shapes=own,
                output_shapes=[tuple(one) for one in shape["output_shapes"]],
                parameters=parameters,
                pieces=pieces,
            )
            made.append(({node.name: own.get(node.name, node.shape) for node in graph.inputs}, one))
        return printed_by_shape(made, api)

    for api in SPELLINGS:
        try:
            found["kernels"][api] = kernel(api, LARGEST)
        except NotLowered as error:
            found["refused"][api] = str(error)
            continue
        found["plainer"][api] = []
        for sizes in plainer:
            with contextlib.suppress(NotLowered):  # smaller pieces may not fit one another
                found["plainer"][api].append(kernel(api, Pieces(**sizes)))
    return found


def _doc(module: Any) -> str:
    """Return what the reference says it computes, in one paragraph."""
    text = (module.forward.__doc__ or module.__doc__ or "").strip().split("\n\n")[0]
    words = " ".join(text.split())
    return f"{words} Lowered from the reference." if words else "Lowered from the reference."


def main() -> None:
    """Answer one request."""
    gc.disable()  # the process ends with its answer, and all nodes are in use until then
    request = json.loads(sys.stdin.read())
    print(json.dumps(answer(Path(sys.argv[1]), request["shapes"], request.get("plainer", ()))))  # noqa: T201


if __name__ == "__main__":
    main()
