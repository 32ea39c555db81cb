"""Measure how good predictions are, for each set of measured kernels: level, order, choice of the fastest, and
intervals.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path

from acceld.errors import AcceldError
from acceld.evaluate.simulated.profiles import profile_from
from acceld.gains import simulated_band
from acceld.model import SIMULATED_LESSON_PERCENT, SIMULATED_TIE_PERCENT, Profile, Source
from acceld.nki.ir.program import Loop, Node
from acceld.nki.timing.parameters import FITTED, LEGACY_2_20, TimelineParams, default_params
from acceld.nki.timing.timeline import timeline
from acceld.nki.timing.uncertainty import INTERVALS, Bound, bound_of
from scripts.evidence.simbench.accuracy import leave_one_out, percent, rank_correlation
from scripts.evidence.simbench.kernels import BEST
from scripts.evidence.simbench.measured_sets import Measured, Role
from scripts.evidence.simbench.tables import Table

APART = 1.10
"""From this ratio of two measurements on, predicting the right direction is required."""
COVERED = 0.8
"""Share of kernels that an interval should contain."""
WORKERS = 2
NKIBENCH = "NKIBench"
ABLATED_EXECUTIONS = 5_000
"""Most instructions of a kernel, counted as they are written, that an ablation times. It leaves out longer kernels."""
RULES: dict[str, dict[str, bool | float]] = {
    "without value numbering": {"value_numbering": False},
    "without fused loops": {"fuse_loops": False},
    "without spills": {"spills": False},
    "turned loads element by element": {"turns_on_tensor_engine": False},
    "SBUF without what the compiler keeps": {"sbuf_kept_bytes": 0},
    "engines strictly in order": {"window": 0},
    "a window of 64 instructions": {"window": 64},
    "short loops run as written": {"merged_iterations": 0, "merges_beside": False},
    "sums made with their tile": {"sums_apart": False},
    "float32 transposes as long as products": {"transpose_passes": 4},
    "transfers of few partitions on all DMA engines": {"engine_partitions": 1},
    "scalar instructions on trn2 as long as on trn1": {"scalar_overhead_cycles": 90},
    "dead results are computed": {"eliminate_dead": False},
    "copies alternate on trn1 as on trn2": {"alternates_copies": True},
    "the usual engine copies": {"alternates_copies": False},
    "vector engine and GpSimd at once": {"shared_sbuf_port": False},
    "tensor_scalar on the vector engine": {"small_operand_elements": 1 << 30},
    "tensor engine always at its full rate": {"half_use": 0.0},
}
"""Mechanisms that an ablation switches off, by name."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A measured kernel, and the prediction of its latency."""

    kernel: Measured
    milliseconds: float
    interval_percent: float | None
    bound: Bound
    engines_us: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        """Return the profile by which a gain over another kernel is judged."""
        kernel, us = self.kernel, 1000 * self.milliseconds
        return Profile(
            Source.SIMULATED,
            kernel.chip,
            kernel.api,
            us,
            "timeline",
            engines_us=self.engines_us,
            counters=self.counters,
        )

    @property
    def ratio(self) -> float:
        """Return predicted over measured latency."""
        return self.milliseconds / self.kernel.milliseconds

    @property
    def inside(self) -> bool | None:
        """Tell whether the measurement lies in the predicted interval; None if there is no interval."""
        if self.interval_percent is None:
            return None
        return abs(math.log(self.ratio)) <= math.log1p(self.interval_percent / 100)


Change = Callable[[TimelineParams], TimelineParams]


def unchanged(params: TimelineParams) -> TimelineParams:
    """Return the parameters unchanged."""
    return params


def predict(kernel: Measured, cache: Path, change: Change = unchanged) -> Predicted | str:
    """Return the prediction of one kernel, or the reason why it has no prediction."""
    params = LEGACY_2_20 if kernel.sdk == LEGACY_2_20.sdk else default_params(kernel.api, kernel.chip)
    try:
        line = timeline(kernel.program(cache), change(params))
    except AcceldError as error:
        return f"{kernel.group} {kernel.name}: {error}"
    assert line.latency_us is not None
    bound = bound_of(line.engines, line.latency_us)
    counters = profile_from(line.to_json(), "").counters
    return Predicted(kernel, line.latency_us / 1000, line.prediction.interval_percent, bound, line.engines, counters)


def predict_all(
    kernels: Sequence[Measured], cache: Path, change: Change = unchanged
) -> tuple[list[Predicted], list[str]]:
    """Return the predictions, and for kernels without a prediction the reasons."""
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(partial(predict, cache=cache, change=change), kernels, chunksize=4))
    return [one for one in found if isinstance(one, Predicted)], [one for one in found if isinstance(one, str)]


def directions(found: Iterable[Predicted]) -> tuple[int, int]:
    """Return two counts over pairs of kernels that compute the same from the same arguments (a *chain*) and whose
    latencies differ by :data:`APART` or more: how many pairs are predicted in the measured order, and how many pairs
    there are.
    """
    right = pairs = 0
    for chain in _chains(found):
        for a, b in combinations(chain, 2):
            ratio = a.kernel.milliseconds / b.kernel.milliseconds
            if max(ratio, 1 / ratio) >= APART:
                pairs += 1
                right += a.milliseconds != b.milliseconds and (a.milliseconds < b.milliseconds) == (ratio < 1)
    return right, pairs


def regrets(found: Iterable[Predicted]) -> list[float]:
    """Return a ratio for each chain of several kernels (kernels that compute the same from the same arguments): the
    measured latency of the kernel that is predicted fastest, over that of the kernel that was measured fastest.
    """
    return [
        min(chain, key=lambda one: one.milliseconds).kernel.milliseconds / min(one.kernel.milliseconds for one in chain)
        for chain in _chains(found)
        if len(chain) > 1
    ]


def _chains(found: Iterable[Predicted]) -> list[list[Predicted]]:
    chains: dict[tuple[str, str], list[Predicted]] = defaultdict(list)
    for one in found:
        chains[one.kernel.group, one.kernel.chain].append(one)
    return list(chains.values())


def summary(name: str, found: Sequence[Predicted]) -> dict[str, object]:
    """Return a row with the figures of a set of kernels: errors of the predicted latencies, order of the kernels,
    choice of the fastest kernel, and how many measurements lie in their intervals.
    """
    level = [abs(one.ratio - 1) for one in found if not one.kernel.order_only]
    rho = rank_correlation([one.milliseconds for one in found], [one.kernel.milliseconds for one in found])
    right, pairs = directions(found)
    regret = regrets(found)
    inside = [one.inside for one in found if one.inside is not None]
    return {
        "set": name,
        "kernels": len(found),
        "Spearman": "-" if rho is None else round(rho, 3),
        "MAPE %": percent(statistics.mean(level)),
        "worst %": percent(max(level)),
        "ratio": round(math.exp(statistics.mean(math.log(one.ratio) for one in found)), 2),
        "direction": f"{right} of {pairs}",
        "worst regret": round(max(regret), 2) if regret else "-",
        "in the interval %": percent(sum(inside) / len(inside), 0) if inside else "-",
    }


def set_tables(found: Sequence[Predicted]) -> dict[str, Table]:
    """Return tables of the sets, development and validation apart; and of KDA's set by operator."""
    tables: dict[str, Table] = {}
    for role in Role:
        mine = [one for one in found if one.kernel.role is role]
        groups: dict[str, list[Predicted]] = defaultdict(list)
        for one in mine:
            groups[one.kernel.group].append(one)
            if one.kernel.group == "KDA":
                groups[f"KDA {one.kernel.chain}"].append(one)
        if groups:
            tables[f"sets_{role}"] = [summary(name, group) for name, group in groups.items()]
    return tables


WIN = "the band of the pair: a win"
Threshold = Callable[[Predicted, Predicted], float]
THRESHOLDS: dict[str, Threshold] = {
    f"{SIMULATED_LESSON_PERCENT:g} %: likely, an insight": lambda _one, _other: SIMULATED_LESSON_PERCENT,
    f"{SIMULATED_TIE_PERCENT:g} %": lambda _one, _other: SIMULATED_TIE_PERCENT,
    WIN: lambda one, other: simulated_band(one.profile, other.profile),
}
"""Percent by which a kernel must be predicted faster than another one, by name."""


def paired_table(found: Sequence[Predicted]) -> Table:
    """Return, for each threshold, how many pairs of one chain are predicted to differ by more, and how many of
    these were measured in that order.

    Pairs with equal measurements count as wrong. Kernels without an interval are left out, because no win
    depends on them.
    """
    table: Table = []
    for role, chip, (name, threshold) in product(Role, ("trn1", "trn2"), THRESHOLDS.items()):
        mine = [one for one in found if (one.kernel.role, one.kernel.chip) == (role, chip)]
        called = right = gains = ties = 0
        for chain in _chains(one for one in mine if one.interval_percent is not None):
            for a, b in combinations(sorted(chain, key=lambda one: one.milliseconds), 2):
                apart = b.milliseconds > a.milliseconds * (1 + threshold(a, b) / 100)
                called += apart
                right += apart and a.kernel.milliseconds < b.kernel.milliseconds
                gained = abs(math.log(a.kernel.milliseconds / b.kernel.milliseconds)) >= math.log(APART)
                gains += gained
                ties += gained and not apart
        if gains:
            table.append(
                {
                    "sets": f"{role}, {chip}",
                    "beyond": name,
                    "called faster": called,
                    "are faster": right,
                    "%": percent(right / called) if called else "-",
                    "gains of 10 %": gains,
                    "within it": ties,
                    "within it %": percent(ties / gains),
                }
            )
    return table


def interval_table(found: Sequence[Predicted]) -> Table:
    """Return, for each class of kernels, the half width that its development kernels need, the widest that they need if one
    chain is left out, and the one in use.
    """
    errors: dict[tuple[str, Bound], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        kernel = one.kernel
        if kernel.role is Role.DEVELOPMENT and not kernel.sdk and not kernel.order_only and kernel.lnc == 1:
            errors[kernel.chip, one.bound][kernel.group, kernel.chain].append(abs(math.log(one.ratio)))
    return [
        {
            "chip": chip,
            "bound by": str(bound),
            "kernels": sum(map(len, chains.values())),
            "chains": len(chains),
            "80 % of errors within %": percent(math.expm1(half_width(chains.values())), 0),
            "a chain left out, at most %": percent(math.expm1(_widest(list(chains.values()))), 0),
            "in use %": INTERVALS[chip, bound][0] if (chip, bound) in INTERVALS else "-",
        }
        for (chip, bound), chains in sorted(errors.items())
    ]


LEFT_OUT: Mapping[str, Mapping[str, bool | float]] = {
    "KDA adamw": {"vector_overhead_cycles": 80},
    "KDA silu": {"sbuf_reserved_bytes": 24 * 1024},
    "KDA gqa_full": {"window": 256},
    "KDA bmm_softmax": {"half_use": 0.5},
    "ladder": {"dma_latency_us": 1.3},
    "attention": {"divide_loops": False, "semaphore_us": 0.1, "double_rate_cycles": 0, "round_trip_us": 0.0},
    "decode attention": {"window": 64, "short_row_us": 0.0, "two_cores_us": 0.0},
}
"""The rules and constants of trn2 that rest on one family of kernels, as they would be without that family: as documented,
as on trn1, as other families have them, or left out.
"""


def family(kernel: Measured) -> str:
    """Return the name of the kernel's family: its set, and of KDA's kernels the operator too."""
    return f"KDA {kernel.chain}" if kernel.group == "KDA" else kernel.group


def left_out_table(found: Sequence[Predicted], cache: Path) -> Table:
    """Return, for each development family on trn2, the errors of ``found``, and those without all rules and constants that
    rest on this family. Then the model knows as little of the family as of a new one.
    """
    families: dict[str, list[Predicted]] = defaultdict(list)
    for one in found:
        if one.kernel.role is Role.DEVELOPMENT and one.kernel.chip == "trn2" and one.kernel.group != "two-core MoE":
            families[family(one.kernel)].append(one)
    left_out: list[Predicted] = []
    table: Table = []
    for name, mine in sorted(families.items()):
        without = mine
        if name in LEFT_OUT:
            kernels = [one.kernel for one in mine]
            without, _ = predict_all(kernels, cache, partial(_without, values=LEFT_OUT[name]))
        left_out += without
        table.append({"family": name, **_left_out(mine, without)})
    everything = [one for mine in families.values() for one in mine]
    return [*table, {"family": "all", **_left_out(everything, left_out)}] if table else []


def _left_out(whole: Sequence[Predicted], without: Sequence[Predicted]) -> dict[str, object]:
    row: dict[str, object] = {"kernels": len(without)}
    for name, found in (("error %", whole), ("error left out %", without)):
        row[name] = percent(statistics.mean(abs(one.ratio - 1) for one in found))
    inside = [one.inside for one in without if one.inside is not None]
    row["in the interval left out"] = f"{sum(inside)} of {len(inside)}"
    wins = [pair for pair in paired_table(without) if pair["beyond"] == WIN]
    row["wins right left out"] = f"{wins[0]['are faster']} of {wins[0]['called faster']}" if wins else "-"
    return row


def half_width(chains: Iterable[Sequence[float]]) -> float:
    """Return the half width of an interval around predictions. ``chains`` has the errors of the kernels of each chain,
    which compute the same. The interval meets three demands:

    - Of ``n`` kernels, the errors of at least ``COVERED * (n + 1)`` are in the interval.
    - The same holds for chains. The error of a chain is the least one that the share :data:`COVERED` of its kernels does not exceed.
      This bounds the error of a kernel of a new chain (conformal prediction), because errors within a chain are similar.
    - The errors of the share :data:`COVERED` of the kernels are in the interval if each chain has the same weight.
    """
    groups = list(chains)
    ranked = sorted(error for errors in groups for error in errors)
    by_kernel = max(_conformal(ranked), _conformal([_conformal(sorted(errors), 0) for errors in groups]))
    weighed = sorted((error, 1 / len(errors) / len(groups)) for errors in groups for error in errors)
    total = 0.0
    for error, weight in weighed:
        total += weight
        if total >= COVERED - 1e-9:
            return max(error, by_kernel)
    raise ValueError("no errors")


def _widest(chains: Sequence[Sequence[float]]) -> float:
    """Return the widest half width of an interval that all chains, or all but one of them, give."""
    rest = [[*chains[:at], *chains[at + 1 :]] for at in range(len(chains) if len(chains) > 1 else 0)]
    return max(half_width(some) for some in (chains, *rest))


def _conformal(errors: Sequence[float], more: int = 1) -> float:
    """Return the error that at least the share :data:`COVERED` of ``errors`` and of ``more`` unknown errors does not
    exceed.

    The result is at most the greatest known error.
    """
    return sorted(errors)[min(len(errors), math.ceil(COVERED * (len(errors) + more) - 1e-9)) - 1]


def ablation_table(kernels: Sequence[Measured], cache: Path, say: Callable[[str], None]) -> Table:
    """Return the errors on development sets with one rule left out, or one fitted constant 20 % lower or higher. The
    last row names the changes that leave every error as it is. Kernels of more than :data:`ABLATED_EXECUTIONS`
    instructions are left out, except the 14 baselines, because a few of them would take most of the time.
    """
    mine = [one for one in kernels if one.role is Role.DEVELOPMENT and not one.sdk and _is_ablated(one, cache)]
    changes: dict[str, Change] = {"as it is": unchanged}
    changes |= {name: partial(_without, values=values) for name, values in RULES.items()}
    changes |= {
        f"{name} x{factor}": partial(_scaled, name=name, factor=factor) for name in FITTED for factor in (0.8, 1.2)
    }
    table: Table = []
    same = []
    for name, change in changes.items():
        found, _ = predict_all(mine, cache, change)
        row = _ablated(found)
        say(f"{name}: {row}")
        if table and row.items() <= table[0].items():
            same.append(name)
        else:
            table.append({"change": name, **row})
    return [*table, dict.fromkeys(table[0], "as it is") | {"change": "; ".join(same)}] if same else table


def _is_ablated(kernel: Measured, cache: Path) -> bool:
    return kernel.group == NKIBENCH or _executions(kernel.program(cache).body) <= ABLATED_EXECUTIONS


def _executions(body: Sequence[Node]) -> int:
    return sum((node.trips or 1) * _executions(node.body) if isinstance(node, Loop) else 1 for node in body)


def _ablated(found: Sequence[Predicted]) -> dict[str, object]:
    """Return a row of the table of ablations:

    - the errors of NKIBench's 14 baselines, each left out when the common scale is fitted: mean and greatest;
    - the mean errors of KDA's kernels, of AWS's samples, and of all other kernels;
    - how many pairs of KDA's kernels are predicted in the measured order.
    """
    baselines = [one.ratio for one in found if one.kernel.group == NKIBENCH and one.kernel.name not in BEST]
    left_out = [abs(error) for error in leave_one_out(baselines)]
    families: dict[str, list[Predicted]] = defaultdict(list)
    for one in found:
        group = one.kernel.group
        if group != NKIBENCH:
            families[group if group == "KDA" else "samples" if group.startswith("samples") else "others"].append(one)
    row: dict[str, object] = {"14 left out %": percent(statistics.mean(left_out)), "worst %": percent(max(left_out))}
    for name, group_found in sorted(families.items()):
        row[f"{name} %"] = percent(
            statistics.mean(abs(one.ratio - 1) for one in group_found if not one.kernel.order_only)
        )
        if name == "KDA":
            row["KDA direction"] = "{} of {}".format(*directions(group_found))
    return row


def _without(params: TimelineParams, values: Mapping[str, bool | float]) -> TimelineParams:
    return replace(params, **values)  # type: ignore[arg-type]  # names and types stand in RULES


def _scaled(params: TimelineParams, name: str, factor: float) -> TimelineParams:
    return params.with_scaled(name, factor)
