"""Make cases of matrix products whose operands are microscaled float8 (trn3)."""

from __future__ import annotations

import numpy as np

from scripts.evidence.simbench.samples import references as ref
from scripts.evidence.simbench.samples.drawing import BF16, E5M2, Array, Made
from scripts.evidence.simbench.samples.trials import NARROW, Case


def _mx_data(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Return values that microscaled float8 can hold exactly, their packed form, and the exponent of each 8 x 4
    block.
    """
    raw = (rng.choice([-1, 1], (rows, columns)) * rng.uniform(1, 1.75, (rows, columns))).astype(E5M2)
    packed = np.ldexp(raw.astype(np.float64), 15).astype(E5M2)  # the block's greatest exponent, as a quantizer does it
    scales = rng.integers(100, 108, (rows // 8, columns // 4)).astype(np.uint8)
    wide = packed.astype(np.float64) * np.repeat(np.repeat(2.0 ** (scales.astype(np.float64) - 127), 8, 0), 4, 1)
    return wide, packed.view(np.uint32), scales


def _mx_product(a: Array, b: Array) -> Array:
    """Return the product of [K, 4 M] and [K, 4 N], where four neighbors in a row are one position of the
    contraction.
    """
    left, right = (x.reshape(x.shape[0], -1, 4).transpose(0, 2, 1).reshape(4 * x.shape[0], -1) for x in (a, b))
    return left.T @ right


def _mx_offline(rng: np.random.Generator) -> Made:
    a, packed_a, scales_a = _mx_data(rng, 128, 512)
    b, packed_b, scales_b = _mx_data(rng, 128, 2048)
    return (packed_a, scales_a, packed_b, scales_b), (_mx_product(a, b),)


def _mx_device(rng: np.random.Generator) -> Made:
    a, packed, scales = _mx_data(rng, 128, 512)
    b, _, _ = _mx_data(rng, 128, 2048)
    return (packed, scales, b.astype(BF16)), (_mx_product(a, b),)


def _mx_copied(rng: np.random.Generator) -> Made:
    a, b = (_mx_data(rng, 512, n)[0].astype(np.float32) for n in (128, 512))
    return (a.astype(BF16), b.astype(BF16)), (ref.wide(a).T @ b,)


def _mx(name: str, arguments: str, types: str) -> str:
    """Return the text of a driver that passes packed types to a kernel, because these can not be arguments."""
    return f"""\
import nki
import nki.language as nl
from mx_kernels import kernel_{name}

@nki.jit
def kernel({arguments}):
    return kernel_{name}({arguments}, {types})
"""


_ROWS = (
    ("offline_quantized_mx_matmul", _mx_offline, "a, b, c, d", "nl.float8_e5m2_x4"),
    ("on_device_quantize_matmul_mx", _mx_device, "a, b, c", "nl.float8_e5m2_x4, nl.float8_e5m2_x4"),
    ("copy_strided_quantize_matmul_mx", _mx_copied, "a, b", "nl.float8_e5m2_x4"),
    ("copy_strided_quantize_matmul_mx", _mx_copied, "a, b", "nl.float8_e5m2_x4, False"),
)


def cases(file: str) -> tuple[Case, ...]:
    """Return the cases of the tutorial's kernels in ``file`` of a checkout."""
    return tuple(
        Case(file, f"kernel_{name}", make, NARROW, chip="trn3", api="nki", driver=_mx(name, arguments, types))
        for name, make, arguments, types in _ROWS
    )
