"""Try the fused decoder layers of KevGomes1403/nki-moe-megakernel on two cores and several ranks, against
acceld's own references.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from scripts.evidence.corpus.host import Host
from scripts.evidence.corpus.outcomes import State, Trial
from scripts.evidence.corpus.repositories import NARROW_TOLERANCE, folder, load
from scripts.evidence.simbench.samples.trials import distance

Array = NDArray[Any]
REPOSITORY = "nki-moe-megakernel"
HIDDEN, HEADS, LANES, EXPERTS, CHOSEN, WIDTH = 2048, 8, 128, 128, 8, 192
"""Sizes of one of four ranks of Qwen3-30B-A3B: a head has LANES numbers, and a token CHOSEN of the experts."""
PAST, CACHED = 200, 256
"""Tokens in the cache before this one, and those it has room for."""
SHAPES: dict[str, tuple[int, ...]] = {
    "Wq": (HEADS * LANES, HIDDEN), "Wk": (LANES, HIDDEN), "Wv": (LANES, HIDDEN), "Wo": (HEADS * LANES, HIDDEN),
    "qn": (LANES,), "kn": (LANES,), "gpre": (HIDDEN,), "gpost": (1, HIDDEN), "router": (HIDDEN, EXPERTS),
    "gate_up": (EXPERTS, HIDDEN, 2 * WIDTH), "down": (EXPERTS, WIDTH, HIDDEN),
    "K_cache": (1, 1, CACHED, LANES), "V_cache": (1, 1, CACHED, LANES),
}  # fmt: skip
TOKEN = 9
"""Seed of a token for which no two experts are nearly tied for the last place: bfloat16 would decide such a tie."""
SHARED = ("qn", "kn", "gpre", "gpost", "router")
"""Weights that all ranks have; each has its own part of the others."""
DRIVER = """
import nki
from megakernels.qwen3_moe.transformer_qwen import _multilayer_body

@nki.jit
def kernel({names}):
    return _multilayer_body(X, {lists}, cos=cos, sin=sin, position_ids=position_ids, num_layers={layers},
                            replica_groups=[{ranks}])
"""


def megakernels(scratch: Path) -> Iterator[Trial]:
    """Yield trials of the mixture of experts, and of decoder layers with attention and experts on two ranks.
    Needs nki-library.
    """
    root, library = folder("NKI_MEGAKERNEL_DIR"), folder("NKI_LIBRARY_DIR")
    if root is not None and library is not None:
        yield Trial(REPOSITORY, "qwen3 experts, 1 rank", partial(_experts, root, library), 120.0)
        yield Trial(REPOSITORY, "qwen3, 2 layers, 2 ranks", partial(_layers, root, library, scratch, 2, 2), 300.0)


def _host(root: Path, library: Path) -> Host:
    sys.path[:0] = [str(root), str(library / "src" / "nkilib_src")]
    host = Host(Path(root.anchor), {"nki": "trn2"}, 200.0, ("torch_xla", "torch_neuronx"), cores=2)
    host.install()
    return host


def _experts(root: Path, library: Path) -> tuple[State, str]:
    host = _host(root, library)
    module = load(root / "megakernels" / "qwen3_moe" / "moe_fused_nki.py", "moe_fused_nki")
    weights = {name: _drawn(name, 0, 0) for name in ("gpost", "router", "gate_up", "down")}
    x = _narrow(np.random.default_rng(7).standard_normal((1, HIDDEN)))
    found = host.run(module.qwen3_moe_fused_tkg_sbuf_io, (x, *weights.values()), {}, (2,))
    return _judged(distance(found[0][0], mixture(_normed(_wide(x)[0]), [weights])))


def _layers(root: Path, library: Path, scratch: Path, layers: int, ranks: int) -> tuple[State, str]:
    host = _host(root, library)
    numbers = range(layers)
    names = ["X", *(f"{name}_{i}" for name in SHAPES for i in numbers), "cos", "sin", "position_ids"]
    words = {"K_cache": "K_caches", "V_cache": "V_caches"}
    lists = ", ".join(
        f"{words.get(name, f'{name}_list')}=({''.join(f'{name}_{i}, ' for i in numbers)})" for name in SHAPES
    )
    file = scratch / "megakernel_driver.py"
    file.write_text(DRIVER.format(names=", ".join(names), lists=lists, layers=layers, ranks=list(range(ranks))))
    angles = np.random.default_rng(8).random(LANES // 2) * 6
    x = _narrow(np.random.default_rng(TOKEN).standard_normal((1, 1, HIDDEN)))
    turn = [_narrow(np.tile(part(angles), 2)[None]) for part in (np.cos, np.sin)]
    weights = [[{name: _drawn(name, rank, i) for name in SHAPES} for rank in range(ranks)] for i in numbers]
    given = [
        dict(zip(names, [x, *(weights[i][rank][name] for name in SHAPES for i in numbers), *turn,
                         np.array([[PAST]], np.int32)], strict=True))
        for rank in range(ranks)
    ]  # fmt: skip
    found = host.run_ranks(load(file, "megakernel_driver").kernel, given, (2,))
    expected, error = _wide(x)[0, 0], 0.0
    for i in numbers:
        expected, keys, values = decoded(expected, weights[i], *turn)
        for rank in range(ranks):
            error = max(error, distance(found[rank][1 + i][0, 0, PAST], keys[rank]))
            error = max(error, distance(found[rank][1 + layers + i][0, 0, PAST], values[rank]))
    return _judged(max(error, *(distance(results[0][0, 0], expected) for results in found)))


def _judged(error: float) -> tuple[State, str]:
    return (State.EQUAL if error <= NARROW_TOLERANCE else State.DIFFERS), f"{error:.2g}"


def _drawn(name: str, rank: int, layer: int) -> Array:
    rng = np.random.default_rng([list(SHAPES).index(name), 0 if name in SHARED else rank, layer])
    values = rng.standard_normal(SHAPES[name], np.float32)
    if name in SHARED and name != "router":
        return _narrow(1 + 0.1 * values)
    inputs = {"down": WIDTH, "Wo": 2 * HIDDEN, "K_cache": 1, "V_cache": 1}.get(name, HIDDEN)
    return _narrow(values / np.sqrt(inputs))


def _narrow(values: Array) -> Array:
    return np.asarray(values).astype(ml_dtypes.bfloat16)


def _wide(values: Array) -> Array:
    return np.asarray(values, np.float32)


def _normed(x: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6))


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def mixture(normed: Array, ranks: list[dict[str, Array]]) -> Array:
    """Return the sum over ranks of the chosen experts' results for one normalized token."""
    x = normed * _wide(ranks[0]["gpost"])[0]
    shares = _softmax(x @ _wide(ranks[0]["router"]))
    chosen = np.argsort(-shares)[:CHOSEN]
    total = np.zeros(HIDDEN, np.float32)
    for weights in ranks:
        for expert in chosen:
            gate, up = np.split(x @ _wide(weights["gate_up"][expert]), 2)
            hidden = gate / (1 + np.exp(-gate)) * up
            total += shares[expert] / shares[chosen].sum() * (hidden @ _wide(weights["down"][expert]))
    return total


def decoded(x: Array, ranks: list[dict[str, Array]], cos: Array, sin: Array) -> tuple[Array, list[Array], list[Array]]:
    """Return a layer's result for one token, and the rows that each rank adds to its caches of keys and values."""

    def turned(rows: Array) -> Array:
        halves = np.split(rows, 2, axis=-1)
        return np.asarray(rows * _wide(cos)[0] + np.concatenate([-halves[1], halves[0]], -1) * _wide(sin)[0])

    keys, values, attended = [], [], np.zeros(HIDDEN, np.float32)
    for weights in ranks:
        normed = _normed(x) * _wide(weights["gpre"])
        q = turned(_normed((_rows(weights["Wq"]) @ normed).reshape(HEADS, LANES)) * _wide(weights["qn"]))
        keys.append(turned(_normed(_rows(weights["Wk"]) @ normed) * _wide(weights["kn"])))
        values.append(_rows(weights["Wv"]) @ normed)
        past = {name: _wide(weights[name])[0, 0, :PAST] for name in ("K_cache", "V_cache")}
        scores = q @ np.vstack([past["K_cache"], keys[-1]]).T / np.sqrt(LANES)
        attended += (_softmax(scores) @ np.vstack([past["V_cache"], values[-1]])).reshape(-1) @ _wide(weights["Wo"])
    middle = x + attended
    return middle + mixture(_normed(middle), ranks), keys, values


def _rows(stored: Array) -> Array:
    """Return the matrix of a projection from the form the kernel wants: each tile of LANES by LANES is
    transposed in place.
    """
    tiles = _wide(stored).reshape(-1, LANES, HIDDEN // LANES, LANES)
    return np.asarray(tiles.transpose(0, 3, 2, 1).reshape(-1, HIDDEN))


__all__ = ["decoded", "megakernels", "mixture"]
