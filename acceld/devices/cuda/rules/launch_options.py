"""Change launch options: the warps of a program, and the number of iterations that a loop loads ahead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from acceld.devices.cuda.rules.reading import Launch, TritonModule, accesses, called, walk, whole
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_WARPS = (8, 2, 16, 1, 4)
_STAGES = (3, 4, 2, 5, 1)
_DEFAULT = {"num_warps": 4, "num_stages": 3}


class LaunchOptions(Rule):
    """Change ``num_warps`` and ``num_stages`` of each launch."""

    name = "launch_options"
    reason = (
        "More warps share a large tile's registers and hide latency; fewer let more programs run on a "
        "multiprocessor. Stages are iterations whose loads run ahead of the arithmetic, paid in shared memory."
    )
    source = "Triton documentation: triton.Config, num_warps and num_stages"
    apis = frozenset({"triton"})
    change_class = "dma"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each launch and option. An option whose value is not written as a number has no place.
        ``num_stages`` has a place only if the kernel loads in a loop.
        """
        for number, launch in enumerate(kernel.launches):
            for option, values in (("num_warps", _WARPS), ("num_stages", _STAGES)):
                now = _value(launch, option)
                if now is None or (option == "num_stages" and not _loads_in_loop(kernel, launch)):
                    continue
                others = [value for value in values if value != now]
                yield self.found(
                    launch.call.lineno,
                    partial(_launched, kernel, launch, option),
                    *(Variant(f"{option}={value}", {"value": value}) for value in others),
                    precondition="an option of the launch does not change results",
                    plan=f"Launch {launch.kernel} with another {option} than {now}: {', '.join(map(str, others))}.",
                    benefit=0.25 if option == "num_warps" else 0.2,
                    gain_percent=(-10.0, 25.0),
                    key=f"{option}/{number}",
                )


def _launched(kernel: TritonModule, launch: Launch, option: str, variant: Variant) -> str:
    edits = Edits(kernel.source)
    given, value = launch.keyword(option), variant.parameters["value"]
    if given is not None:
        edits.replace(*kernel.span(given.value), str(value))
    else:
        edits.insert(kernel.arguments_end(launch.call), f", {option}={value}")
    return edits.apply()


def _value(launch: Launch, option: str) -> int | None:
    given = launch.keyword(option)
    return _DEFAULT[option] if given is None else whole(given.value)


def _loads_in_loop(kernel: TritonModule, launch: Launch) -> bool:
    """Tell whether a loop of the launched kernel loads. Stores do not count: they do not run ahead."""
    function = kernel.kernels[launch.kernel]
    inside = {id(node) for loop in walk(function.body) if isinstance(loop, ast.For) for node in ast.walk(loop)}
    return any(id(access) in inside and called(access) == "tl.load" for access in accesses(function))


RULE = LaunchOptions()
