"""Lower a reference in a process of its own: tracing calls a person's code, and replaces numpy's constructors meanwhile.

``python -m acceld.lowering.child REF.py`` reads a request from its standard input and answers with one line of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acceld.lowering.graph import NotLowered
from acceld.lowering.kernels import lowered, work
from acceld.lowering.loops import vectorized
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import SPELLINGS, printed


def answer(path: Path, arguments: Sequence[dict[str, Any]], output_shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the kernel of each API, or why there is none, and the work of the reference.

    ``arguments`` have ``name`` and ``value``, or ``name``, ``shape``, ``dtype`` and the kernel's shape as ``kernel_shape``;
    ``output_shapes`` are the kernel's.
    """
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = [
        (a["name"], a["value"] if a.get("value") is not None else (tuple(a["shape"]), a["dtype"])) for a in arguments
    ]
    shapes = {a["name"]: tuple(a["kernel_shape"]) for a in arguments if a.get("kernel_shape")}
    found: dict[str, Any] = {"kernels": {}, "refused": {}}
    try:
        graph = vectorized(traced(module.forward, path, given))
    except NotLowered as error:
        return found | {"refused": dict.fromkeys(SPELLINGS, str(error))}
    products, others, moved = work(graph)
    found["work"] = {"matmul_flops": products, "vector_flops": others, "hbm_bytes": moved}
    for api in SPELLINGS:
        try:
            kernel = lowered(
                graph,
                api,
                doc=_doc(module),
                shapes=shapes,
                output_shapes=[tuple(shape) for shape in output_shapes],
                parameters=[name for name, _ in given],
            )
            found["kernels"][api] = printed(kernel, api)
        except NotLowered as error:
            found["refused"][api] = str(error)
    return found


def _doc(module: Any) -> str:
    """Return what the reference says it computes, in one paragraph."""
    text = (module.forward.__doc__ or module.__doc__ or "").strip().split("\n\n")[0]
    words = " ".join(text.split())
    return f"{words} Lowered from the reference." if words else "Lowered from the reference."


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.read())
    print(json.dumps(answer(Path(sys.argv[1]), request["arguments"], request["output_shapes"])))  # noqa: T201


if __name__ == "__main__":
    main()
