"""Find and evaluate the kernels that commands work with: from files, workloads or the history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import convert

from acceld import config
from acceld.chips import API_CHIPS, REPORTED_CHIPS
from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.kernel_files import api_of_file, is_reference, load_kernel, no_kernel, syntax_error
from acceld.model import Evaluation, Gate, Kernel, Profile
from acceld.nki.entry import has_kernel, parse
from acceld.targets import SIMULATOR, Choice, choose, default_choice
from acceld.workloads import Workload, load_workload, workload

NOT_PASSED = 7
"""Exit code of a kernel that does not pass."""
SUFFIXES = (".py", ".c")
"""Endings of kernel files; every other name is that of a workload."""


def place_of(
    resolved: config.Resolved,
    path: Path | None,
    found: Workload | None,
    *,
    api: str | None = None,
    chip: str | None = None,
    backend: str | None = None,
    simulated: bool = False,
    unwritten: bool = False,
) -> Choice:
    """Return backend, API and chip for a kernel file ``path``, or for the baseline of the workload ``found``.

    All commands find their target here. A value that was asked for counts first. If no API was asked for, the API is
    that of the file's imports, or one for which the workload has a kernel. If no chip was asked for, the chip is the
    configured chip if API and workload run on it, else a chip on which they run.

    A kernel that is still to be lowered from a reference, and a workload whose first kernel is for the current API, get
    that API unless another one is configured (:func:`acceld.targets.default_choice`). With ``unwritten``, models write
    the workload's first kernel, so it needs none for the API. Raise UsageError if values that
    were asked for contradict each other.
    """
    own = path is not None and path.suffix in SUFFIXES
    asked = api or (api_of_file(path) if path is not None and own else None)
    search = resolved.config.search
    default = Choice(SIMULATOR if simulated else resolved.config.devices.backend, search.api, search.chip)
    if found is not None and not own:
        default = default_choice(default, resolved.sets, found.baselines)
    elif path is not None and is_reference(path):
        default = default_choice(default, resolved.sets, ())
    return choose(
        default,
        backend=SIMULATOR if simulated else backend,
        api=asked,
        chip=chip,
        offered=found.baselines if found is not None and not own and not unwritten else (),
        runs_on=found.chips if found is not None else (),
    )


def workload_folders(settings: config.Config) -> list[Path]:
    """Return the folders in which the configuration says to look for further workloads."""
    return [Path(folder) for folder in settings.paths.workloads]


def workload_of(path: Path, name: str | None, settings: config.Config) -> Workload | None:
    """Return the workload by which a kernel file is evaluated: the workload called ``name``, or else the one in the
    file's folder; None without either.
    """
    if name:
        return workload(name, workload_folders(settings))
    return load_workload(path.parent) if (path.parent / "workload.toml").is_file() else None


def baseline_of(found: Workload, api: str) -> Path:
    """Return the file of a workload's baseline for an API. Raise UsageError if the workload has no baseline for that
    API.
    """
    if api not in found.baselines:
        known = ", ".join(sorted(found.baselines))
        if not known:
            raise UsageError(
                f"workload {found.name} has no kernel: its workload.toml lists none in [baselines]",
                hint=f"acceld optimize {found.folder} --wait makes one from the reference, if it can be lowered",
            )
        raise UsageError(
            f"workload {found.name} has no baseline for API {api}; it has baselines for: {known}",
            hint="choose one of these with --api",
        )
    return found.baselines[api]


def parsed_kernel(path: Path, *, api: str, exit_code: int = UsageError.exit_code, **launch: Any) -> Kernel:
    """Return the kernel in a file. Raise UsageError with ``exit_code`` if the file is Python by its name and
    can not be parsed or is no kernel.
    """
    kernel = load_kernel(path, api=api, **launch)
    if path.suffix == ".py" and (error := syntax_error(kernel.text, path) or no_kernel(kernel, path)) is not None:
        error.exit_code = exit_code
        raise error
    return kernel


def say_cautions(path: Path, kernel: Kernel, chip: str) -> None:
    """Print a note on each reason why the simulator runs the kernel in ``path`` and a Trainium may not."""
    if kernel.api in API_CHIPS and not has_kernel(parse(kernel.text, kernel.filename)):
        say(
            f"note: no function of {path} is under @nki.jit, which a Trainium needs; the simulator runs {path} nevertheless"
        )
    if chip in REPORTED_CHIPS.get(kernel.api, ()):
        say(f"note: AWS supports {kernel.api} on {' and '.join(API_CHIPS[kernel.api])}, and not on {chip}")


def stored_kernel(candidate: Mapping[str, Any]) -> Kernel:
    """Return a stored candidate's kernel, trusted as in its run: a person's kernel, and what rules made of it."""
    return Kernel(
        text=candidate["text"],
        api=candidate["api"],
        entry=candidate["entry"],
        grid=tuple(candidate["grid"]),
        lnc=candidate["lnc"],
        filename=candidate["filename"],
        closure=candidate["closure"],
        trusted=candidate["trusted"],
    )


def stored_profile(candidate: Mapping[str, Any]) -> Profile | None:
    """Return a stored candidate's profile; None if the candidate has none."""
    record = candidate["evaluation_record"]
    return convert(record["profile"], Profile) if record and record["profile"] else None


def plain(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as an object for a JSON request to the daemon."""
    names = ("text", "api", "entry", "lnc", "filename", "trusted")
    return {name: getattr(kernel, name) for name in names} | {
        "grid": list(kernel.grid),
        "closure": dict(kernel.closure),
    }


async def evaluated(
    evaluator: Any, kernel: Kernel, gate: Gate, *, workload: str, folder: str, chip: str, **further: Any
) -> Evaluation:
    """Return the evaluation of a kernel by a started evaluator, which evaluates the kernel before all requests that
    wait.
    """
    from acceld.evaluate.interface import EvaluationRequest, Priority

    request = {"workload": workload, "workload_folder": folder, "chip": chip, "gate": gate}
    found: Evaluation = await evaluator.evaluate(
        EvaluationRequest(kernel, **{"priority": Priority.PERSON, **request, **further})
    )
    return found


async def evaluated_once(
    kernel: Kernel, gate: Gate, settings: config.EvaluateConfig, state: Path, *, workload: str, folder: str, chip: str
) -> Evaluation:
    """Return the evaluation of a kernel by a simulator that is started for it alone."""
    from acceld.evaluate.interface import started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

    async with started(SimulatedEvaluator(settings, state)) as evaluator:
        return await evaluated(evaluator, kernel, gate, workload=workload, folder=folder, chip=chip)
