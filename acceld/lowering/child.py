"""Lower a reference in a separate process, because tracing runs a user's code and replaces numpy's constructors.

``python -m acceld.lowering.child REF.py`` reads one JSON request from its standard input and answers with one line of
JSON.
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
    """Return the lowered kernel for each API, or the reason of a refusal, and the work of the reference.

    Each element of ``shapes`` has ``arguments`` and ``output_shapes``. An argument has ``name`` and ``value``, or
    ``name``, ``shape``, ``dtype`` and, if the kernel takes another shape, ``kernel_shape``. ``output_shapes`` are the
    shapes of the kernel's outputs. The reference is traced once for each element, and the kernel branches on the shapes.

    The work is counted for the first element of ``shapes``. ``plainer`` asks for additional kernels for each API. Each of
    its elements limits the sizes of a kernel's pieces.
    """
    sys.dont_write_bytecode = True  # do not write a __pycache__ to the user's folder
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
            try:
                graph = vectorized(traced(module.forward, path, given))
            except NotLowered as error:
                if len(shapes) == 1:
                    raise
                raise NotLowered(
                    f"{error} (with {_described(given)}; get_inputs is not called at other shapes)"
                ) from error
            traces.append((shape, [name for name, _ in given], graph))
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
                numbers={a["name"]: a["value"] for a in shape["arguments"] if a.get("value") is not None},
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
            with contextlib.suppress(NotLowered):  # a kernel with such small pieces may not exist; it is then left out
                found["plainer"][api].append(kernel(api, Pieces(**sizes)))
    return found


def _described(given: Sequence[tuple[str, Any]]) -> str:
    """Return the names and the shapes of arguments, in words."""
    return ", ".join(
        f"{name} {'x'.join(map(str, value[0])) if isinstance(value, tuple) else value}" for name, value in given
    )


def _doc(module: Any) -> str:
    """Return the docstring for the kernel: the first paragraph of the reference's docstring, and a note that the kernel
    was lowered from it.
    """
    text = (module.forward.__doc__ or module.__doc__ or "").strip().split("\n\n")[0]
    words = " ".join(text.split())
    return f"{words} Lowered from the reference." if words else "Lowered from the reference."


def main() -> None:
    """Read a request from the standard input, and write the answer to the standard output."""
    gc.disable()  # collecting garbage would free nothing, because all nodes are in use until the process ends
    request = json.loads(sys.stdin.read())
    print(json.dumps(answer(Path(sys.argv[1]), request["shapes"], request.get("plainer", ()))))  # noqa: T201  # the answer of this process


if __name__ == "__main__":
    main()
