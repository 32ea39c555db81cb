"""Run kernels in C (built by gcc) and in numpy on the host's processor."""

from acceld.device import HOST, Device, Target

DEVICE = Device(
    "cpu",
    (Target("cpu", {"c": (HOST,), "numpy": (HOST,)}),),
    evaluator="acceld.devices.cpu.backend:evaluator",
    doctor="acceld.devices.cpu.backend:doctor",
    host_timed=True,
    figures="acceld.devices.cpu.backend:figures",
    calls="acceld.devices.cpu.calls:lines",
    rules="acceld.devices.cpu.rules",
    readers={"c": "acceld.devices.cpu.rules.reading:read"},
    attacks="cpu",
)
