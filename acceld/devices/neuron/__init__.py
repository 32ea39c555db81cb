"""Trainium through AWS's own software: compile once, run in a trusted process, time until it is steady.

Nothing here imports Neuron. The compiler and the runtime live in interpreters of their own (AWS's virtual
environments), run the two programs in ``runtime/scripts`` and speak records on pipes.
"""

from acceld.device import Device, Target

DEVICE = Device(
    "neuron",
    (
        Target("neuron_legacy", {"nki_legacy": ("trn1", "trn2")}),
        Target("neuron", {"nki": ("trn2", "trn3")}),
    ),
    evaluator="acceld.devices.neuron.backend:evaluator",
    doctor="acceld.devices.neuron.backend:doctor",
    interference="acceld.devices.neuron.interference:learn",
    cancellable_timing=True,
)
