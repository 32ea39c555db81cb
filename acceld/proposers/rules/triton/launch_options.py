"""How many warps run a program, and how many iterations ahead its loop loads."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.triton.reading import Launch, TritonModule, accesses, walk, whole

_WARPS = (8, 2, 16, 1, 4)
_STAGES = (3, 4, 2, 5, 1)
_DEFAULT = {"num_warps": 4, "num_stages": 3}


class LaunchOptions:
    """``num_warps`` and ``num_stages`` of each launch."""

    name = "launch_options"
    reason = (
        "More warps share a large tile's registers and hide latency; fewer let more programs run on a "
        "multiprocessor. Stages are iterations whose loads run ahead of the arithmetic, paid in shared memory."
    )
    source = "Triton documentation: triton.Config, num_warps and num_stages"
    apis = frozenset({"triton"})
    change_class = "dma"

    def sites(self, kernel: TritonModule, profile: Profile | None) -> Sequence[Site]:
        """Two sites a launch; stages only where a loop loads."""
        found = []
        for number, launch in enumerate(kernel.launches):
            for option, values in (("num_warps", _WARPS), ("num_stages", _STAGES)):
                now = _value(launch, option)
                if now is None or (option == "num_stages" and not _loads_in_loop(kernel, launch)):
                    continue
                others = [value for value in values if value != now]
                found.append(
                    Site(
                        self.name,
                        launch.call.lineno,
                        "an option of the launch changes no result",
                        f"Launch {launch.kernel} with another {option} than {now}: {', '.join(map(str, others))}.",
                        tuple(Variant(f"{option}={value}", {"value": value}) for value in others),
                        0.25 if option == "num_warps" else 0.2,
                        (-10.0, 25.0),
                        f"{option}/{number}",
                    )
                )
        return found

    def apply(self, kernel: TritonModule, site: Site, variant: Variant) -> str:
        """The option in the call."""
        option, _, number = site.key.partition("/")
        if int(number) >= len(kernel.launches):
            raise RuleRefused(f"there is no launch number {number}")
        launch = kernel.launches[int(number)]
        edits = Edits(kernel.source)
        given = launch.keyword(option)
        if given is not None:
            edits.replace(*kernel.span(given.value), str(variant.parameters["value"]))
        else:
            edits.insert(*_end(kernel, launch.call), f", {option}={variant.parameters['value']}")
        return edits.apply()


def _end(kernel: TritonModule, call: ast.Call) -> tuple[int]:
    """Behind the last argument."""
    last = max(kernel.span(one)[1] for one in [*call.args, *call.keywords])
    return (last,)


def _value(launch: Launch, option: str) -> int | None:
    given = launch.keyword(option)
    return _DEFAULT[option] if given is None else whole(given.value)


def _loads_in_loop(kernel: TritonModule, launch: Launch) -> bool:
    function = kernel.kernels[launch.kernel]
    inside = {id(node) for loop in walk(function.body) if isinstance(loop, ast.For) for node in ast.walk(loop)}
    return any(id(access) in inside for access in accesses(function))


RULE = LaunchOptions()
