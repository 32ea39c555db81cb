"""Check kernels on a core: compare the core's outputs with the reference, on one data set after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from acceld.devices.neuron.bench import Bench, inputs_of
from acceld.devices.neuron.builds import Builds
from acceld.devices.neuron.case import NeuronCase
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.case import Failed
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.bands import is_banded
from acceld.evaluate.correctness.checks import at_hidden, placed
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.correctness.distributions import OWN, hidden_variants
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import (
    EXPENSIVE_S,
    Trial,
    check_errors,
    fresh_seed,
    search_trial,
    strict_trials,
)
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.shapes import at_shape
from acceld.evaluate.simulated.children import Children
from acceld.model import Gate
from acceld.workloads import load_workload, shape_text
from acceld.workloads.inputs import numpy_dtype


class Checker:
    """Run kernels on data sets and check their outputs.

    ``backend`` is part of the key under which the errors of baselines are stored on disk.
    """

    def __init__(self, backend: str, bench: Bench, builds: Builds, children: Children, floors: Floors) -> None:
        self._backend = backend
        self._children = children
        self._bench = bench
        self._builds = builds
        self._floors = floors

    async def pass_gates(self, case: NeuronCase) -> Failed | None:
        """Run every data set of the requested gates. Return the first failure; None if the kernel passes on all data
        sets.

        The strict gate also compiles the source for every hidden shape, and tries each declared distribution at that
        shape.
        """
        trials = [search_trial(case.seeds)]
        elsewhere: list[tuple[str, NeuronCase]] = []
        expensive = False
        if case.request.gate is Gate.STRICT:
            for values in case.workload.hidden:
                there = await self._built_at(case, values)
                if isinstance(there, Failed):
                    return there
                elsewhere.append((f"the hidden shape {shape_text(values)}", there))
            cost = await asyncio.to_thread(self._floors.of_numpy, case.workload, OWN)
            expensive = cost is not None and cost.seconds > EXPENSIVE_S
            # Trials with shuffled loops are left out, because a NEFF fixes the order of loops.
            trials += [one for one in strict_trials(case.workload, case.seeds, expensive=expensive) if not one.shuffled]

        async def work(runner: NeuronRunner) -> Failed | None:
            case.checks, case.worst_row = [], 0.0
            if (bad := await self._bench.load(case, runner, 0, case.build)) is not None:
                return bad
            for trial in trials:
                if (failed := await self.attempt(case, runner, trial)) is not None:
                    return failed
            for where, there in elsewhere:
                variants = hidden_variants(there.workload, expensive=expensive)
                if (failed := await self._elsewhere(case, there, runner, where, variants)) is not None:
                    return failed
            return None

        with case.stage("check"):
            return await self._bench.on_core(case, timing=False, work=work)

    async def _built_at(self, case: NeuronCase, values: Mapping[str, int]) -> NeuronCase | Failed:
        """Compile the same source for a hidden shape. Return a case for that shape, or the failure if it does not
        compile.
        """
        shaped = await asyncio.to_thread(load_workload, case.workload.folder, values)
        there = NeuronCase(at_shape(case.request, case.workload, shaped), shaped, seeds=case.seeds)
        built = await self._builds.build(there, there.request.kernel)
        case.spend(there.seconds)
        if isinstance(built, Failed):
            return replace(built, failure=placed(built.failure, f"the hidden shape {shape_text(values)}"))
        there.compiled = built
        return there

    async def _elsewhere(
        self, case: NeuronCase, there: NeuronCase, runner: NeuronRunner, where: str, variants: Sequence[str]
    ) -> Failed | None:
        """Check the kernel at a hidden shape, with each of ``variants``, on the core that has checked the kernel at its
        own shape.

        ``there`` is the case of the hidden shape. Return the failure; None if the kernel passes.
        """
        there.checks = []
        failed = await self._bench.load(there, runner, 0, there.build)
        for variant in variants:
            failed = failed or await self.attempt(there, runner, Trial(variant, fresh_seed()))
        case.checks += [at_hidden(check, where.removeprefix("the hidden shape ")) for check in there.checks]
        return failed and Failed(failed.status, placed(failed.failure, where), case.correctness(Gate.STRICT))

    async def attempt(self, case: NeuronCase, runner: NeuronRunner, trial: Trial, name: str = "") -> Failed | None:
        """Run the kernel on one data set, and return the failure.

        Return None if the kernel passes, or if the workload does not allow this kind of data set.
        """
        loaded = case.workload
        async with self._children.data_for(case, trial) as data:
            if data is None:
                return None
            inputs = await inputs_of(data)
            ran = await runner.run(inputs, deadline_s=self._bench.check_s)
            if isinstance(ran, Failed):
                return ran
            errors = await asyncio.to_thread(_errors, ran, data)
            result = check_errors(loaded, trial, errors, data.floors, None)
            if not result.check.passed and (result.errors.finite or is_banded(trial.variant)):
                noise = await self._noise_of_baseline(case, runner, data, inputs, trial)
                result = check_errors(loaded, trial, errors, data.floors, noise)
        if name:
            result = replace(result, check=replace(result.check, name=name))
        return case.checked(result, case.request.gate)

    async def _noise_of_baseline(
        self, case: NeuronCase, runner: NeuronRunner, data: DataSet, inputs: tuple[bytes, ...], trial: Trial
    ) -> tuple[Errors, ...] | None:
        """Return the errors that the workload's baseline makes on this chip with this data; None if they can
        not be measured.

        The errors are measured once, with the baseline in a second slot of the runner, and then stored.
        """
        request, loaded = case.request, case.workload
        stored = await asyncio.to_thread(self._floors.of_kernel, loaded, self._backend, request.chip, trial.variant)
        if stored is not None or request.kernel.api not in loaded.baselines:
            return stored
        kernel = await asyncio.to_thread(baseline_kernel, loaded, request.kernel.api)
        built = await self._builds.build(case, kernel)
        if isinstance(built, Failed) or await self._bench.load(case, runner, 1, built) is not None:
            return None
        ran = await runner.run(inputs, slot=1, deadline_s=self._bench.check_s)
        if isinstance(ran, Failed):
            return None
        errors = await asyncio.to_thread(_errors, ran, data)
        return await asyncio.to_thread(
            self._floors.learn_kernel, loaded, self._backend, request.chip, trial.variant, errors, data.floors
        )


def _errors(outputs: tuple[bytes, ...], data: DataSet) -> list[Errors]:
    """Return the errors of each output against the expected values. ``outputs`` are bytes in C order."""
    dtypes = [dtype for _, dtype in datasets.read_expected(data.folder)]
    arrays = [np.frombuffer(raw, numpy_dtype(dtype)) for raw, dtype in zip(outputs, dtypes, strict=True)]
    return datasets.measure(data.folder, arrays)
