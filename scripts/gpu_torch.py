"""Time torch's own kernels for the workloads of the GPU trial, in the same way as the trial times acceld's
kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from acceld.workloads import Workload, load_reference, make_inputs

WARM_UP, TIMED = 5, 20
CLOSE = 2e-2
"""Largest relative L2 distance from the reference's formula at which torch's kernel counts as the same operator."""
MOST_FLUSHES = 64

Kernel = Callable[..., Any]


def timed(found: Workload, flush_bytes: int, device: str = "cuda") -> dict[str, Any]:
    """Return the fastest of torch's own kernels for a workload, its microseconds, and the reasons why others
    did not run.

    A kernel is not timed if its first output differs from that of the reference's formula.
    """
    forward = load_reference(found.reference).forward_torch if found.reference else None
    if forward is None:
        return {"error": "the reference has no form for torch"}
    inputs = _inputs(found, device)
    with torch.no_grad():
        expected = _first(forward(*inputs)).double()
        rows: dict[str, float] = {}
        said: dict[str, str] = {}
        for name, kernel in (*own_kernels(found.name, inputs), ("formula", lambda: forward(*inputs))):
            try:
                got = _first(kernel()).double().reshape(expected.shape)
                apart = float((got - expected).norm() / expected.norm())
                if apart > CLOSE:
                    said[name] = f"another result, by {apart:.3g}"
                else:
                    rows[name] = median_us(kernel, flush_bytes, device)
            except Exception as error:  # noqa: BLE001  # torch may refuse a form in any way; the table says which
                said[name] = f"{type(error).__name__}: {error}"[:300]
    if not rows:
        return {"error": "; ".join(f"{name}: {text}" for name, text in said.items())}
    best = min(rows, key=lambda name: rows[name])
    return {"kernel": best, "us": rows[best], "others_us": rows, "refused": said}


def own_kernels(name: str, inputs: Sequence[Any]) -> list[tuple[str, Callable[[], Any]]]:
    """Return torch's fused operators for a workload by name.

    Work that a caller would do once for many calls is done before, outside of the time: gathering pages and
    making masks.
    """
    if name.startswith("rmsnorm"):
        x, weight = inputs[0], inputs[1]
        return [("rms_norm", lambda: F.rms_norm(x, (x.shape[-1],), weight, 1e-6))]
    if name.startswith("fused_add_rmsnorm"):
        x, residual, weight = inputs
        return [("add, rms_norm", lambda: F.rms_norm(x + residual, (x.shape[-1],), weight, 1e-6))]
    if name.startswith("gqa_paged_decode"):
        return _decode(*inputs)
    if name.startswith("gqa_paged_prefill"):
        return _prefill(*inputs)
    return []


def _decode(q: Any, k: Any, v: Any, indptr: Any, pages: Any, scale: float) -> list[tuple[str, Callable[[], Any]]]:
    """Return two forms of attention over pages that are gathered before: one padded and masked call for all
    sequences, and one call for each sequence.
    """
    ends = indptr.tolist()
    lengths = [end - start for start, end in pairwise(ends)]
    longest = max(lengths)
    keys, values = (
        torch.zeros(len(lengths), k.shape[2], longest, k.shape[3], dtype=k.dtype, device=k.device) for _ in "kv"
    )
    for number, (start, length) in enumerate(zip(ends, lengths, strict=False)):
        keys[number, :, :length] = k[pages[start : start + length].long(), 0].transpose(0, 1)
        values[number, :, :length] = v[pages[start : start + length].long(), 0].transpose(0, 1)
    seen = torch.arange(longest, device=q.device)[None, :] < torch.tensor(lengths, device=q.device)[:, None]
    mask, query = seen[:, None, None, :], q[:, :, None, :]

    def padded() -> Any:
        return F.scaled_dot_product_attention(query, keys, values, mask, scale=scale, enable_gqa=True)

    def one_by_one() -> Any:
        return torch.cat(
            [
                F.scaled_dot_product_attention(
                    query[n : n + 1],
                    keys[n : n + 1, :, :size],
                    values[n : n + 1, :, :size],
                    scale=scale,
                    enable_gqa=True,
                )
                for n, size in enumerate(lengths)
            ]
        )

    return [("sdpa, padded", padded), ("sdpa, a sequence a call", one_by_one)]


def _prefill(
    q: Any, k: Any, v: Any, qo_indptr: Any, kv_indptr: Any, pages: Any, scale: float
) -> list[tuple[str, Callable[[], Any]]]:
    """Return causal attention over pages that are gathered before: one call a sequence, masked from the lower
    right corner.
    """
    queries, ends = qo_indptr.tolist(), kv_indptr.tolist()
    group = q.shape[1] // k.shape[2]
    parts = []
    for number in range(len(ends) - 1):
        own = q[queries[number] : queries[number + 1]].transpose(0, 1)[None]
        there = pages[ends[number] : ends[number + 1]].long()
        keys, values = (one[there, 0].transpose(0, 1)[None].repeat_interleave(group, 1) for one in (k, v))
        parts.append((own, keys, values, _lower_right(own.shape[2], keys.shape[2], q.device)))

    def attend() -> Any:
        outputs = [F.scaled_dot_product_attention(own, k, v, mask, scale=scale) for own, k, v, mask in parts]
        return torch.cat([one[0].transpose(0, 1) for one in outputs])

    return [("sdpa, a sequence a call", attend)]


def _lower_right(queries: int, keys: int, device: Any) -> Any:
    """Return the causal mask in the form that torch's flash kernel takes; as an array if this torch lacks that
    form.
    """
    from torch.nn.attention.bias import causal_lower_right

    if str(device).startswith("cuda"):
        return causal_lower_right(queries, keys)
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def median_us(call: Callable[[], Any], flush_bytes: int, device: str = "cuda") -> float:
    """Return the median time in microseconds of TIMED calls, each with an empty L2 cache.

    As for acceld's kernels, the host queues its calls behind so many writes that the device never waits for the
    host.
    """
    if device != "cuda":
        return _host_us(call)
    flush = torch.empty(flush_bytes, dtype=torch.uint8, device=device)
    took: list[float] = []
    flushes, number = 1, 0
    while number < WARM_UP + TIMED:
        for _ in range(flushes):
            flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        waited = start.query()
        torch.cuda.synchronize()
        if waited and flushes < MOST_FLUSHES:
            flushes *= 2
            continue
        number += 1
        took.append(1000 * start.elapsed_time(end))
    return statistics.median(took[WARM_UP:])


def _host_us(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - started)


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) else result


def _inputs(found: Workload, device: str) -> list[Any]:
    """Return the workload's inputs on the device, in its dtypes."""
    made = []
    for argument, value in zip(found.arguments, make_inputs(found, 0), strict=True):
        if not isinstance(value, np.ndarray):
            made.append(value)
        elif value.dtype.kind in "iub":
            made.append(torch.from_numpy(value).to(device))
        else:
            made.append(torch.from_numpy(value.astype(np.float32)).to(device).to(getattr(torch, argument.dtype)))
    return made
