"""Collect nki-library's own tests with pytest, and run a few of each on the stand-ins for Neuron's packages."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from scripts.evidence.corpus.host import Host, HostKernel, Stopped
from scripts.evidence.corpus.outcomes import State, Trial
from scripts.evidence.corpus.repositories import compared, folder

STUBS = tuple(
    "neuron_dtypes boto3 botocore fabric2 paramiko plotext aws_embedded_metrics pytest_html test.utils.scripts".split()
)
EACH = 1
"""Number of parameter sets tried of each test on each number of cores; the smallest are taken."""
REPOSITORY = "nki-library"
RANGES = "range_test_options"
"""Parameter of tests whose shapes are drawn from ranges."""
SWEEP = "coverage_parametrize"
"""Mark of tests whose parameters are combined from lists; the values of these options are not parameters."""
SWEEP_OPTIONS = (
    "coverage filter enable_automatic_boundary_tests enable_invalid_combination_tests n_tests_per_boundary_value "
    "max_invalid_tests"
).split()


class _Manager:
    """Stand-in for the tests' manager, which would compile a kernel, run it on a chip and compare the results."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.right = True
        self.trace_mode = sys.modules["test.utils.common_dataclasses"].TraceMode.CompileAndInfer

    def execute(self, under_test: Any, *args: Any, **kwargs: Any) -> None:
        """Run the kernel, and compare its results with the golden results of the test, by the test's
        tolerances.
        """
        compiler, given = under_test.compiler_input, under_test.kernel_input
        ranks = under_test.inference_args.collective_ranks
        self.host.cores = compiler.logical_nc_config
        drawn = [given.for_rank(rank) if hasattr(given, "for_rank") else given for rank in range(ranks)]
        values = [{name.removesuffix(".must_alias_input"): value for name, value in one.items()} for one in drawn]
        kernel = under_test.kernel_func
        grid = kernel.grid if isinstance(kernel, HostKernel) else ()
        found = self.host.run_ranks(kernel, values, grid, "nki", compiler.platform_target.get_compile_target())
        for rank, results in enumerate(found):
            self.right = self.right and _agree(results, under_test.validation_args, rank)


def _agree(found: list[NDArray[Any]], validation: Any, rank: int) -> bool:
    golden = validation.golden_output
    if hasattr(golden, "for_rank"):
        golden = golden.for_rank(rank)
    wanted = golden if isinstance(golden, Mapping) else golden.golden
    if wanted is None or len(wanted) > len(found):
        raise Stopped(State.RUNS, "no golden results" if wanted is None else "fewer results than golden ones")
    shapes = golden.output_ndarray if hasattr(golden, "output_ndarray") else {}
    right = True
    for (name, want), result in zip(wanted.items(), found, strict=False):
        if hasattr(want, "validator"):
            shape, kind = want.output_ndarray.shape, want.output_ndarray.dtype
            validator = want.validator() if isinstance(want.validator, type) else want.validator
            right = right and bool(validator.validate(np.ascontiguousarray(result).astype(kind).reshape(shape)))
            continue
        a = result.astype(np.float64).reshape(-1)
        b = np.asarray(want).astype(np.float64).reshape(-1)
        if a.size != b.size:
            raise Stopped(
                State.UNTRIED,
                f"{name} has shape {result.shape}, its golden result {np.shape(want)}, "
                f"and the test declares {np.shape(shapes.get(name, 0))}",
            )
        # as nki-library's validator does: relative to the greatest golden value
        greatest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
        if greatest > (most := _greatest(result.dtype)):
            raise Stopped(
                State.RUNS, f"golden results up to {greatest:.6g} exceed {result.dtype}, which ends at {most:.6g}"
            )
        limit = validation.absolute_accuracy + validation.relative_accuracy * greatest
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))
        right = right and bool(wrong.mean() <= (validation.accuracy_buffer_percent or 0) / 100)
    return right


def _greatest(kind: np.dtype[Any]) -> float:
    """Return the greatest finite value of a type of floats; infinity for any other type."""
    try:
        return float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
    except ValueError:
        return float("inf")


class _Collector:
    """Plug-in of pytest that keeps the collected tests, and runs none."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Give a test its ranges of shapes, as the project's own conftest does."""
        if RANGES in metafunc.fixturenames:
            harness = sys.modules["test.utils.ranged_test_harness"].RangeTestHarness
            names, cases = harness(metafunc.function.range_test_config).get_unique_test_cases()
            legal = [(name, case) for name, case in zip(names, cases, strict=True) if not case.is_negative_test_case]
            metafunc.parametrize(RANGES, [case for _, case in legal], ids=[name for name, _ in legal])
        elif sweep := metafunc.definition.get_closest_marker(SWEEP):
            made = importlib.import_module("test.utils.coverage_parametrized_tests")
            lists = {name: value for name, value in sweep.kwargs.items() if name not in SWEEP_OPTIONS}
            drawn = made.generate_parametrized_test_case(
                lists, "singles", sweep.kwargs.get("filter"),
                enable_automatic_boundary_tests=False, enable_invalid_combination_tests=False,
            )  # fmt: skip
            names, values, ids = made.extract_parametrize_args(lists, drawn)
            metafunc.parametrize(names, values, ids=ids)

    def pytest_collection_finish(self, session: Any) -> None:
        """Keep the collected tests."""
        self.items = list(session.items)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run no test."""
        return True


def nki_library(scratch: Path) -> Iterator[Trial]:
    """Yield trials of nki-library's tests: for each function and number of cores, the smallest. Needs torch and
    pytest.
    """
    root = folder("NKI_LIBRARY_DIR")
    if root is None:
        return
    import pytest

    sys.path[:0] = [str(root), str(root / "src"), str(root / "src" / "nkilib_src")]
    for name in [name for name in sys.modules if name == "test" or name.startswith("test.")]:
        del sys.modules[name]
    host = Host(root, {"nki": "trn2", "nki_legacy": "trn2"}, 150.0, STUBS)
    host.install()
    collector = _Collector()
    sys.modules["test.utils.perf_analysis_private"] = MagicMock()
    folder_of_tests = root / "test" / "integration"
    pytest.main(
        [str(folder_of_tests), "--noconftest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(root),
         "--collect-only", "--continue-on-collection-errors", "-W", "ignore", "-k", "not model_config"],
        plugins=[collector],
    )  # fmt: skip
    for item in _chosen(collector.items):
        name = f"{Path(item.path).stem}::{item.name}"
        yield Trial(REPOSITORY, name, partial(_tested, item, host), 60.0)


def _chosen(items: list[Any]) -> Iterator[Any]:
    by_function: dict[tuple[str, Any], list[Any]] = defaultdict(list)
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        unset = any(type(value).__name__ == "NotSetType" for value in values)
        if not unset:
            by_function[item.nodeid.partition("[")[0], _cores(item)].append(item)
    for group in by_function.values():
        yield from sorted(group, key=_size)[:EACH]


def _cores(item: Any) -> int:
    values = item.callspec.params if hasattr(item, "callspec") else {}
    return int(next((v for k, v in values.items() if re.search("lnc|vnc", k) and isinstance(v, int)), 0))


def _size(item: Any) -> float:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    ranged = [
        size for value in values if hasattr(value, "tensors") for one in value.tensors.values() for size in one.values()
    ]
    numbers = [float(v) for v in (*values, *ranged) if isinstance(v, int) and not isinstance(v, bool) and v > 1]
    return prod(numbers)


def _tested(item: Any, host: Host) -> tuple[State, str]:
    module = sys.modules[item.module.__name__]
    platforms = sys.modules["test.utils.common_dataclasses"].Platforms
    manager = _Manager(host)
    known: dict[str, Any] = {
        "test_manager": manager, "collector": MagicMock(), "platform_target": platforms.TRN2, "request": MagicMock(),
        **(item.callspec.params if hasattr(item, "callspec") else {}),
    }  # fmt: skip
    function = getattr(item.cls(), item.originalname) if item.cls else getattr(module, item.originalname)
    wanted = list(inspect.signature(function).parameters)
    missing = [name for name in wanted if name not in known]
    if missing:
        return State.UNTRIED, f"fixtures {', '.join(missing)}"
    try:
        function(**{name: known[name] for name in wanted})
    except Stopped as stopped:
        return stopped.state, stopped.reason
    except BaseException:
        if host.stopped is None:
            raise
    if host.stopped is not None and host.stopped.state is State.UNTRACED:
        return State.EQUAL, "refused, as its test expects"
    return compared(host, manager.right)
