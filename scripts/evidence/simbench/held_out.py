"""List AWS's published latencies of 40 kernels on which no constant was fitted.

The kernels come from a checkout of aws-neuron/nki-samples at its last legacy commit (3a99c91). This file has
only figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceld.nki.frontend.tracing import Argument, TensorSpec

MAMBA = "src/nki_samples/tutorials/fused_mamba/mamba_nki_kernels.py"
VISION = "src/nki_samples/reference/vision.py"
ATTENTION = "src/nki_samples/reference/attention.py"
ALLOCATED = "src/nki_samples/reference/allocated_attention.py"
LINEAR = "src/nki_samples/reference/allocated_fused_linear.py"
SELF_ATTENTION = "fused_self_attn_for_SD_small_head_size"
TUTORIAL, TESTS = "fused Mamba tutorial", "limits in nki-samples' tests"
FLOAT = "float32"


@dataclass(frozen=True, slots=True)
class Published:
    """One published latency. The figure of a test is a limit, which its authors set at, or a little above, what
    they measured.
    """

    group: str
    source: str
    file: str
    entry: str
    arguments: tuple[Argument, ...]
    milliseconds: float
    grid: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Return the kernel's name and shapes as one text."""
        shapes = [one for one in self.arguments if isinstance(one, TensorSpec)]
        return f"{self.entry} {'x'.join(map(str, shapes[0].shape))} {shapes[0].dtype}"


def _mamba(version: int, channels: int, length: int, milliseconds: float) -> Published:
    wide, narrow = TensorSpec((1, channels, length), FLOAT), TensorSpec((1, 16, length), FLOAT)
    arguments = (wide, wide, TensorSpec((channels, 16), FLOAT), narrow, narrow)
    return Published("mamba", TUTORIAL, MAMBA, f"mamba_v{version}", arguments, milliseconds)


def _pool(shape: tuple[int, ...], output: int, dtype: str, microseconds: float) -> Published:
    arguments = (TensorSpec(shape, dtype), output)
    return Published("pooling", TESTS, VISION, "adaptive_avg_pool2d_kernel", arguments, microseconds / 1000)


def _attention(file: str, length: int, head: int, dtype: str, microseconds: float) -> Published:
    turned, straight = TensorSpec((1, head, length), dtype), TensorSpec((1, length, head), dtype)
    keys = turned if file == ALLOCATED else straight
    name = SELF_ATTENTION if file == ATTENTION else f"allocated_{SELF_ATTENTION}"
    return Published("attention", TESTS, file, name, (turned, keys, straight), microseconds / 1000, grid=(1,))


def _linear(rows: int, width: int, columns: int, dtype: str, microseconds: float) -> Published:
    arguments = (TensorSpec((1, rows, width), dtype), TensorSpec((width, columns), dtype))
    return Published("norm and product", TESTS, LINEAR, "allocated_fused_rms_norm_qkv", arguments, microseconds / 1000)


SECOND_MS = {1024: 4.4, 2048: 8.9, 3072: 13.1, 4096: 17.6, 5120: 23.7, 6144: 27.5, 7168: 41.3, 8192: 52.2}
THIRD_MS = {512: 1.6, 1024: 3.3, 2048: 6.6, 3072: 10.1, 4096: 13.3, 5120: 17.3, 6144: 19.6, 7168: 24.2, 8192: 27.8}
PUBLISHED = (
    _mamba(1, 256, 512, 0.17293),
    _mamba(1, 4096, 512, 2.34),
    _mamba(2, 4096, 512, 1.61),
    *(_mamba(2, 4096, length, ms) for length, ms in SECOND_MS.items()),
    *(_mamba(3, 4096, length, ms) for length, ms in THIRD_MS.items()),
    _pool((1, 64, 56, 56), 7, "float32", 65),
    _pool((2, 128, 28, 28), 7, "float32", 109),
    _pool((1, 256, 14, 14), 7, "float16", 88),
    _pool((4, 64, 56, 56), 7, "float32", 152),
    _pool((2, 128, 28, 28), 14, "float32", 327),
    _pool((1, 512, 7, 7), 1, "float32", 14),
    _pool((8, 64, 32, 32), 4, "float16", 103),
    _pool((2, 2048, 32, 32), 3, "float32", 564),
    _pool((2, 64, 256, 256), 1, "float32", 255),
    _attention(ATTENTION, 4096, 128, "float32", 600),
    _attention(ATTENTION, 4096, 128, "bfloat16", 480),
    _attention(ATTENTION, 4096, 64, "float16", 520),
    _attention(ALLOCATED, 4096, 128, "float32", 410),
    _attention(ALLOCATED, 4096, 128, "bfloat16", 350),
    _attention(ALLOCATED, 5120, 128, "bfloat16", 586),
    _linear(128, 512, 512, "float16", 25),
    _linear(512, 1024, 384, "bfloat16", 40),
    _linear(128, 1024, 512, "bfloat16", 28),
    _linear(1024, 8192, 512, "bfloat16", 301),
    Published(
        "scatter",
        TESTS,
        VISION,
        "select_and_scatter_kernel",
        (TensorSpec((8, 64, 112, 112), FLOAT), TensorSpec((8, 64, 56, 56), FLOAT)),
        4.5,
    ),
)
"""Published latencies. Of several releases' limits the lowest is taken.

The tests name no chip; trn1 is assumed. Three are left out: layernorm, whose limit fits no published shape (2.3 ms for
300 rows); flash_fwd, whose limits are a thousand times too long; resize_nearest, whose instances write the same output
elements.
"""
