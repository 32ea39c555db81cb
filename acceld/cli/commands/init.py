"""``acceld init``: make a workload folder, with comments to read, from a kernel of yours or a formula, and show the
kernel's first result.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from acceld import config, drafts, figures
from acceld.chips import CURRENT_API
from acceld.cli.arguments import add_json, add_launch, add_target
from acceld.cli.commands.profile import FINE, Subject, print_evaluation, record
from acceld.cli.declared import Judged, judged_at, say_judged
from acceld.cli.kernels import NOT_PASSED, baseline_of, parsed_kernel, place_of, say_cautions
from acceld.cli.modules import add_module, module_reference, module_request, write_module_workload
from acceld.cli.output import print_json, say
from acceld.cli.reference import say_surprises, write_reference_workload
from acceld.drafts import DraftArgument, DraftOutput
from acceld.errors import UsageError, no_file
from acceld.given_arguments import by_forward, by_signature, check_order
from acceld.home import find_home
from acceld.model import Kernel
from acceld.targets import Choice
from acceld.workloads import BASELINE_FILES, Arguments, ArraySpec, load_workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "kernel",
        metavar="KERNEL",
        nargs="?",
        help="a .py file, or a .c file for the host's processor; without a kernel, --reference or --module is lowered to one",
    )
    add_module(parser)
    parser.add_argument("--inputs", metavar="SAMPLE.npz", help="arrays by argument name, used as they are")
    parser.add_argument(
        "--reference",
        metavar="REF.py",
        help="file with the numpy oracle: a function forward, and optionally get_inputs",
    )
    parser.add_argument(
        "--module",
        metavar="PKG.MOD:CLASS",
        help="PyTorch module, or FILE.py:CLASS: its forward becomes the reference; its weights become arguments",
    )
    add_launch(parser)
    parser.add_argument(
        "--mutates", action="append", default=[], metavar="NAME", help="an argument that the kernel writes to"
    )
    add_target(parser, simulated=True)
    parser.add_argument("-o", "--output", metavar="DIR", help="the folder to write (default: ./<kernel's name>)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the workload folder, evaluate the kernel once, print the result, and return the exit code."""
    if arguments.kernel is None:
        return _from_reference(arguments)
    if arguments.module and not Path(arguments.kernel).exists():
        raise UsageError(
            f"--module makes the first kernel, so {arguments.kernel} can not be a kernel, too",
            hint=f"to name the folder, write -o {arguments.kernel} in its place",
        )
    path = Path(arguments.kernel)
    in_c = path.suffix == ".c"
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": arguments.api})
    settings = resolved.config
    if in_c and (arguments.api or arguments.chip):
        raise UsageError(
            "a kernel in C is timed on this machine's processor, so --api and --chip do not apply",
            hint="leave out --api and --chip",
        )
    if in_c and not arguments.reference:
        raise UsageError(
            "a kernel in C needs a reference", hint="add --reference REF.py, a numpy file with forward and get_inputs"
        )
    where = place_of(resolved, path, None, api=arguments.api, chip=arguments.chip, simulated=not in_c)
    chip, api = where.chip, where.api
    kernel = parsed_kernel(path, api=api, entry=arguments.entry, grid=arguments.grid, lnc=arguments.lnc)
    folder = Path(arguments.output or path.stem)
    if folder.exists():
        raise UsageError(f"{folder} exists", hint="choose another folder with -o")
    facts = _facts(arguments, kernel)
    given, outputs = list(facts.arguments), list(facts.outputs)
    say_cautions(path, kernel, chip)
    lowered = _lowered(Path(arguments.reference), given, outputs) if arguments.reference else None
    state = find_home(arguments.home).prepare()
    if not outputs:
        outputs, written = asyncio.run(_traced(kernel, given, chip, settings.evaluate, state))
        arguments.mutates = arguments.mutates or written
    _write(folder, path, kernel, given, outputs, arguments, lowered.work if lowered else None, facts)
    other = lowered.kernels.get(api) if lowered else None
    beside = Kernel(other, api, "kernel", trusted=True) if other is not None else None
    say(f"trying {path} on the inputs that its new workload declares: about a minute at most")
    with _kept_if_fine(folder) as kept:
        found = asyncio.run(judged_at(where, kernel, folder.resolve(), settings.evaluate, state, beside))
        kept.append(found.evaluation.status in FINE)
        return _shown(arguments, folder, path, kernel, found, chip, resolved)


def _lowered(reference: Path, given: list[DraftArgument], outputs: list[DraftOutput]) -> drafts.Lowered:
    """Return the kernels that are lowered from a reference, and its work. If the reference can not be lowered, the work is
    the bytes of its arrays.
    """
    facts = drafts.ReferenceFacts(tuple(given), tuple(outputs))
    lowered = drafts.lowered_kernels(reference, facts)
    return lowered if lowered.work else replace(lowered, work=drafts.compulsory_work(facts))


def _say_lowered(found: Judged, arguments: argparse.Namespace, chip: str) -> None:
    """Print a note if the kernel that is lowered from the reference is predicted faster than the person's own."""
    own, other = found.evaluation.profile, found.lowered
    if own is None or other is None or not 0 < (other.latency_us or 0) < (own.latency_us or 0):
        return
    say(
        f"note: the kernel that acceld lowers from {arguments.reference} is predicted faster: "
        f"{figures.latency(other.latency_us, other.source, chip, other.interval_percent)}; acceld init --reference {arguments.reference} -o NEW "
        "makes a workload that begins with it"
    )


@contextmanager
def _kept_if_fine(folder: Path) -> Iterator[list[bool]]:
    """Yield a list, and remove the folder after the block unless the block added True to the list.

    So a failed ``acceld init`` leaves no folder.
    """
    kept: list[bool] = []
    try:
        yield kept
    finally:
        if not any(kept):
            shutil.rmtree(folder, ignore_errors=True)


def _shown(
    arguments: argparse.Namespace,
    folder: Path,
    path: Path,
    kernel: Kernel,
    found: Judged,
    chip: str,
    resolved: config.Resolved,
) -> int:
    """Print the kernel's first result, whether the kernels for other APIs pass, and which command to run next. Return
    the exit code.
    """
    loaded, evaluation = load_workload(folder), found.evaluation
    if arguments.json:
        print_json({"folder": str(folder), "refused": found.refused} | record(evaluation, loaded, chip, kernel))
    else:
        print_evaluation(evaluation, Subject(kernel, loaded, loaded.kernel_arguments()), chip, str(path))
        if loaded.reference is None:
            say(
                "note: nothing says what the kernel should compute: candidates are compared with the kernel's own execution in float64; "
                "--reference REF.py names a numpy file with forward"
            )
    say_judged(found, folder, kernel.api)
    _say_lowered(found, arguments, chip)
    if evaluation.status in FINE:
        say(f"wrote {folder}/; read its workload.toml: the tolerance and [work] are yours to set")
        if kernel.api == "nki_legacy" and CURRENT_API not in loaded.baselines:
            other = BASELINE_FILES[CURRENT_API]
            port = f"acceld port {loaded.baselines[kernel.api]} --workload {folder} -o {folder / other}"
            say(f"note: the folder has a kernel for {kernel.api} alone; {port} writes one for {CURRENT_API}")
            say(f'note: then add the line {CURRENT_API} = "{other}" to [baselines] of {folder}/workload.toml')
        for api in loaded.baselines:
            if api != kernel.api:
                other_place = place_of(resolved, None, loaded, api=api, simulated=True)
                judge_too(other_place, folder, resolved.config.evaluate, find_home(arguments.home).prepare(), found)
        say(f"next: acceld optimize {folder} --preset quick --wait")
    else:
        made_from = " or ".join(filter(None, (arguments.kernel, arguments.reference, arguments.module)))
        say(
            f"{folder}/ was not kept, because the kernel does not pass; change {made_from}, then run the same command again"
        )
    return 0 if evaluation.status in FINE else NOT_PASSED


def _from_reference(arguments: argparse.Namespace) -> int:
    """Write a workload folder with kernels lowered from the reference, evaluate the kernel for the chosen API once, and print
    the result.
    """
    if bool(arguments.reference) == bool(arguments.module):
        raise UsageError(
            "a kernel, a reference or a module is needed",
            hint="name exactly one: acceld init KERNEL.py, --reference REF.py or --module PKG.MOD:CLASS",
        )
    if arguments.init and not arguments.module:
        raise UsageError(
            "--init gives arguments to a module's class, and no module is named",
            hint="add --module PKG.MOD:CLASS",
        )
    unused = [f"--{name}" for name in ("entry", "grid", "mutates", "inputs") if getattr(arguments, name)]
    if unused:
        raise UsageError(
            f"{', '.join(unused)} describes a kernel, and no kernel file is named", hint="acceld init KERNEL.py ..."
        )
    made_from = Path(arguments.reference or arguments.module.rpartition(":")[2].lower())
    folder = Path(arguments.output or made_from.stem)
    if folder.exists():
        raise UsageError(f"{folder} exists", hint="choose another folder with -o")
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": arguments.api})
    settings = resolved.config
    if arguments.module:
        module = module_reference(module_request(arguments.module, arguments))
        lowered = write_module_workload(module, folder, name=folder.name)
    else:
        given = [drafts.parse_argument(text, place) for place, text in enumerate(arguments.arg)]
        given += [drafts.parse_scalar(text) for text in arguments.scalar]
        reference = Path(arguments.reference)
        lowered = write_reference_workload(reference, by_forward(reference, given), folder, name=folder.name)
    if not lowered.kernels:
        raise _not_lowered(arguments, folder)
    loaded = load_workload(folder)
    where = place_of(resolved, None, loaded, api=arguments.api, chip=arguments.chip, simulated=True)
    path = baseline_of(loaded, where.api)
    kernel = parsed_kernel(path, api=where.api, entry=loaded.entry or "")
    state = find_home(arguments.home).prepare()
    with _kept_if_fine(folder) as kept:
        found = asyncio.run(judged_at(where, kernel, folder.resolve(), settings.evaluate, state))
        kept.append(found.evaluation.status in FINE)
        return _shown(arguments, folder, path, kernel, found, where.chip, resolved)


def _not_lowered(arguments: argparse.Namespace, folder: Path) -> UsageError:
    """Remove a reference's folder, and return the error that says that no kernel was lowered.

    The folder is removed so that the same command works once the reference is mended. The folder of a PyTorch module
    is kept, because only this folder has the module's reference.
    """
    if arguments.module:
        return UsageError(
            f"no kernel could be lowered from {arguments.module}; {folder}/ has the workload without one",
            hint=f"models can write the first kernel: acceld optimize {folder} --from-reference --proposer llm; to lower a "
            f"changed module, remove {folder}/ and run the same command again",
        )
    shutil.rmtree(folder)
    words = ["acceld", "optimize", "--from-reference", arguments.reference]
    words += [word for name in ("arg", "scalar") for text in getattr(arguments, name) for word in (f"--{name}", text)]
    return UsageError(
        f"no kernel could be lowered from {arguments.reference}; {folder}/ was not kept",
        hint=f"change {arguments.reference}, then run the same command again; models can write the first kernel: "
        f"{shlex.join([*words, '--proposer', 'llm'])}",
    )


def judge_too(
    where: Choice, folder: Path, settings: config.EvaluateConfig, state: Path, first: Judged | None = None
) -> None:
    """Judge the kernel for another API in a new folder, and print whether it passes.

    ``first`` is the judgement of the kernel that was judged first. Its notes were printed before, and are not repeated.
    """
    path = baseline_of(load_workload(folder), where.api)
    kernel = parsed_kernel(path, api=where.api)
    found = asyncio.run(judged_at(where, kernel, folder.resolve(), settings, state))
    evaluation, subject = found.evaluation, f"{path.name} ({where.api}, {where.chip})"
    if evaluation.status in FINE:
        say(f"note: {subject} passes too")
    else:
        why = evaluation.failure.message if evaluation.failure else evaluation.status
        say(f"note: {subject} does not pass: {why}; take {where.api} out of [baselines], or mend the file")
    say_judged(found, folder, where.api, first)


def _facts(arguments: argparse.Namespace, kernel: Kernel) -> drafts.ReferenceFacts:
    """Return the arguments and outputs of the reference, as running it shows them; without a reference, the kernel's
    arguments alone.
    """
    given = [drafts.parse_argument(text, place) for place, text in enumerate(arguments.arg)]
    if arguments.inputs:
        import numpy as np

        sample = Path(arguments.inputs)
        if not sample.is_file():
            raise no_file(
                sample, hint="--inputs SAMPLE.npz: a file that numpy.savez wrote, with the arrays by argument name"
            )
        try:
            arrays = np.load(sample, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(
                f"{sample} is no file of arrays: {error}",
                hint="numpy.savez writes such a file, with the arrays by argument name",
            ) from error
        if isinstance(arrays, np.ndarray):
            raise UsageError(
                f"{sample} holds one array without a name",
                hint="write the file by numpy.savez, with a name for each array: numpy.savez(FILE, NAME=ARRAY)",
            )
        with arrays:
            given = [DraftArgument(name, arrays[name].shape, arrays[name].dtype.name) for name in arrays.files]
    given += [drafts.parse_scalar(text) for text in arguments.scalar]
    if given and kernel.api != "c":  # acceld does not parse C, so a C kernel's parameters are unknown here
        given = by_signature(kernel, given)
    if arguments.reference:
        if kernel.api != "c":
            check_order(kernel, Path(arguments.reference))
        facts = drafts.reference_facts(Path(arguments.reference), given)
        say_surprises(Path(arguments.reference), facts)
        return facts
    if not given:
        raise UsageError(
            f"the shapes of the arguments of {arguments.kernel} are not known",
            hint="give --arg x=128x512:float32 for each array, or --inputs SAMPLE.npz, or --reference REF.py",
        )
    return drafts.ReferenceFacts(tuple(given), ())


async def _traced(
    kernel: Kernel, given: list[DraftArgument], chip: str, settings: config.EvaluateConfig, state: Path
) -> tuple[list[DraftOutput], list[str]]:
    """Trace the kernel. Return its outputs, and the names of the arguments that it writes to."""
    from acceld.evaluate.simulated.programs import traced_program

    program = await traced_program(kernel, _specs(given), chip, settings, state)
    found = [program.buffers[number] for number in program.outputs]
    outputs = [DraftOutput(f"out{place}", buffer.shape, buffer.dtype) for place, buffer in enumerate(found)]
    arrays = [one.name for one in given if one.value is None]
    written = [name for name, at in zip(arrays, program.inputs, strict=True) if program.buffers[at].written_input]
    return outputs, written


def _specs(given: list[DraftArgument]) -> Arguments:
    return tuple(a.value if a.value is not None else ArraySpec(a.kernel_shape or a.shape, a.dtype) for a in given)


def _write(
    folder: Path,
    path: Path,
    kernel: Kernel,
    given: list[DraftArgument],
    outputs: list[DraftOutput],
    arguments: argparse.Namespace,
    work: Mapping[str, int] | None,
    facts: drafts.ReferenceFacts,
) -> None:
    """Write the workload folder completely, or not at all. ``work`` is the operator's work, None if it is unknown."""
    fresh = folder.with_name(f".{folder.name}.acceld")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        baselines = drafts.write_kernel(kernel, fresh)
        if arguments.reference:
            shutil.copyfile(arguments.reference, fresh / "reference.py")
        if arguments.inputs:
            shutil.copyfile(arguments.inputs, fresh / "inputs.npz")
        text = drafts.workload_toml(
            folder.name,
            given,
            outputs,
            baselines=baselines,
            reference="reference.py" if arguments.reference else None,
            entry=kernel.entry,
            grid=kernel.grid,
            lnc=kernel.lnc,
            mutates=arguments.mutates,
            sample="inputs.npz" if arguments.inputs else "",
            work=work,
            unread=facts.unread,
            noise=facts.noise,
        )
        (fresh / "workload.toml").write_text(text, encoding="utf-8")
        fresh.rename(folder)
    except OSError as error:
        raise UsageError(f"can not write {folder}: {error.strerror}", hint="choose another folder with -o") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
