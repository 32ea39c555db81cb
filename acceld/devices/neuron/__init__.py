"""Run kernels on Trainium through AWS's own software: compile once, run in a trusted process, time until it is
steady.

No module of this package imports Neuron's packages. AWS's compiler and runtime have Python interpreters of
their own, in virtual environments. Those interpreters run the programs in ``runtime/scripts``, which exchange
records on pipes.
"""

from acceld.chips import chips_of
from acceld.device import Device, Target

DEVICE = Device(
    "neuron",
    (
        Target("neuron_legacy", {"nki_legacy": chips_of("nki_legacy")}),
        Target("neuron", {"nki": chips_of("nki")}),
    ),
    evaluator="acceld.devices.neuron.backend:evaluator",
    doctor="acceld.devices.neuron.backend:doctor",
    nki_version="acceld.devices.neuron.tools.detection:nki_version",
    judge="acceld.devices.neuron.opinion:judge",
    interference="acceld.devices.neuron.interference:learn",
    cancellable_timing=True,
)
