"""Evaluate kernels that people and other programs send to the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from acceld.config import Config
from acceld.daemon import specs
from acceld.errors import UsageError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.model import Evaluation, Gate, Kernel
from acceld.targets import SIMULATOR, Choice, choose
from acceld.workloads import Workload

KEYS = frozenset(
    {"id", "workload", "workload_folder", "backend", "api", "chip", "gate", "kernel", "against", "arguments", "details"}
)
ALONE_KEYS = frozenset({"id", "api", "chip", "kernel", "arguments", "details"})
BASELINE = "baseline"
"""Word in ``against`` that stands for the workload's own baseline."""
MOST_AGAINST = 4


def request_of(asked: Mapping[str, Any], config: Config) -> EvaluationRequest:
    """Return the evaluation request that a client's JSON object describes.

    Without ``kernel`` the request is for the workload's baseline for ``api``. ``against`` lists kernels, or the word
    ``baseline``; a device times them interleaved with the kernel. A request with an ``id`` is one of many: it waits
    behind single requests, and takes entry and grid from the workload. A request with ``arguments`` has no workload,
    and its kernel is only timed by the simulator. Raise UsageError for a bad field, WorkloadError for an unknown
    workload.
    """
    if "arguments" in asked:
        return _alone(asked, config)
    unknown = set(asked) - KEYS
    if unknown or not isinstance(asked.get("workload"), str):
        keys = ", ".join(sorted(KEYS - {"workload"}))
        raise UsageError(f"an evaluation needs the key workload, and may have {keys}")
    given = asked.get("kernel")
    kernel = specs.kernel(given, asked.get("api"), config.search.api) if given is not None else None
    default = Choice(config.devices.backend, config.search.api, config.search.chip)
    api = kernel.api if kernel is not None else asked.get("api")
    found = specs.workload_of(asked, config)
    where = choose(
        default,
        backend=asked.get("backend"),
        api=api,
        chip=asked.get("chip"),
        offered=found.baselines if api is None else (),
        runs_on=found.chips,
    )
    if kernel is None:
        kernel = baseline_kernel(found, where.api)
    elif "id" in asked:
        kernel = _launched(kernel, asked["kernel"], found)
    others = [_other(one, asked, where.api, config) for one in _list(asked.get("against", []))]
    return EvaluationRequest(
        kernel=kernel,
        workload=asked["workload"],
        workload_folder=str(asked.get("workload_folder", "")),
        backend=where.backend,
        chip=where.chip,
        gate=specs.gate(asked.get("gate", Gate.SEARCH)),
        priority=Priority.PERSON if "id" not in asked else Priority.BASELINE,
        against=tuple(one for one in others if one is not None),
    )


def _alone(asked: Mapping[str, Any], config: Config) -> EvaluationRequest:
    """Return the request to time a kernel that has no workload."""
    if not set(asked) <= ALONE_KEYS:
        raise UsageError(
            f"a request with arguments in place of a workload can only time the kernel; its keys may be {', '.join(sorted(ALONE_KEYS))}",
            hint="leave out the other keys, or name a workload instead of arguments",
        )
    kernel = specs.kernel(asked.get("kernel"), asked.get("api"), config.search.api)
    default = Choice(SIMULATOR, config.search.api, config.search.chip)
    where = choose(default, backend=SIMULATOR, api=kernel.api, chip=asked.get("chip"))
    return EvaluationRequest(
        kernel,
        "",
        where.chip,
        backend=where.backend,
        gate=Gate.TIMING,
        priority=Priority.PERSON if "id" not in asked else Priority.BASELINE,
        arguments=specs.arguments(asked["arguments"]),
    )


def _list(against: Any) -> list[Any]:
    if not isinstance(against, list) or len(against) > MOST_AGAINST:
        raise UsageError(
            f"against is a list of at most {MOST_AGAINST} kernels, or of the word {BASELINE!r}",
            hint=f"such as [{BASELINE!r}]",
        )
    return against


def _other(given: Any, asked: Mapping[str, Any], api: str, config: Config) -> Kernel | None:
    """Return the kernel that ``given`` names for a comparison with the evaluated kernel. Return None if ``given`` is
    the word ``baseline`` and the workload has no baseline for ``api``.
    """
    if given == BASELINE:
        found = specs.workload_of(asked, config)
        return baseline_kernel(found, api) if api in found.baselines else None
    kernel = specs.kernel(given, api, api)
    if kernel.api != api:
        raise UsageError(
            f"against has a kernel in {kernel.api}, which can not be timed interleaved with a kernel in {api}",
            hint=f"name kernels in {api}",
        )
    return _launched(kernel, given, specs.workload_of(asked, config))


def _launched(kernel: Kernel, given: Mapping[str, Any], found: Workload) -> Kernel:
    """Return the kernel with entry, grid and LNC of the workload, unless ``given`` sets them."""
    lnc = kernel.lnc if "lnc" in given else found.lnc
    return replace(kernel, entry=kernel.entry or found.entry or "", grid=kernel.grid or found.grid, lnc=lnc)


FINDINGS = ("binding", "hot_spots", "unproven")
"""Names of the profile's details that say what limits a kernel's speed, and which assumptions its latency depends on.
"""


def answer(asked: Mapping[str, Any], request: EvaluationRequest, evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON-able data, with its backend, chip and API.

    If ``details`` in ``asked`` is false, the profile's details are left out; if it is ``"findings"``, only those in
    :data:`FINDINGS` stay. ``paired`` in the result has the speed-up over each kernel of ``against`` that was timed
    interleaved, in the order of ``against``.
    """
    reported = asdict(evaluation) | {"backend": request.backend, "chip": request.chip, "api": request.kernel.api}
    found = evaluation.profile.details.get("paired", ()) if evaluation.profile is not None else ()
    turns = {one["against"]: one for one in found}
    reported["paired"] = [turns[other.sha256] for other in request.against if other.sha256 in turns]
    wanted = asked.get("details", True)
    if wanted is not True and reported["profile"] is not None:
        kept = FINDINGS if wanted == "findings" else ()
        whole = reported["profile"]["details"]
        reported["profile"]["details"] = {name: whole[name] for name in kept if name in whole}
    return reported | ({"id": asked["id"]} if "id" in asked else {})
