"""Run Triton kernels on NVIDIA GPUs.

A kernel's host code becomes a launch plan: a list of allocations and launches. acceld's own runner replays and
times it.
"""

from acceld.device import Device, Target

DEVICE = Device(
    "cuda",
    (Target("cuda", {"triton": ("h100", "h200", "a100", "b200", "l40s", "l4")}),),
    evaluator="acceld.devices.cuda.backend:evaluator",
    doctor="acceld.devices.cuda.backend:doctor",
    host_timed=True,
    figures="acceld.devices.cuda.gpus:figures",
    calls="acceld.devices.cuda.calls:lines",
    rules="acceld.devices.cuda.rules",
    readers={"triton": "acceld.devices.cuda.rules.reading:TritonModule"},
)
