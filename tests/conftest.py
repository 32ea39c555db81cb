"""The user's folders and the Neuron software of the whole suite, settings of the property tests (the same examples in every
run of the suite, fresh ones under ``make fuzz``), and how much processor the suite itself needs.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]  # a health check by the clock fails on a busy machine

settings.register_profile(
    "repeatable", max_examples=40, derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW
)
settings.register_profile(
    "fresh", max_examples=200, deadline=None, database=None, print_blob=True, suppress_health_check=_SLOW
)
settings.load_profile("repeatable")  # ``--hypothesis-profile=fresh`` replaces it

_TESTS = Path(__file__).parent
_COMPUTING = _TESTS / "acceld"
_USER = tempfile.TemporaryDirectory(prefix="acceld-user-")
atexit.register(_USER.cleanup)
# Tests neither read nor change the user's own records and data sets. Modules that are imported later may copy the
# environment, so it is set here and not in a fixture.
os.environ |= {name: os.path.join(_USER.name, name.lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}

from acceld.devices.neuron.tools import detection
from acceld.nki.frontend import shims
from acceld.store.database import Store
from acceld.workloads import load_workload
from tests.zygotes import IdleZygotes

# A Neuron package found on this machine would change which kernels are refused.
detection.VENVS = Path(os.devnull) / "none"
detection.HOME = lambda: detection.VENVS


def _import_tests_from_another_one_on() -> None:
    """Import all test modules, in each worker from another one on. In a new checkout, workers that import in one order compile
    the same modules at the same time, each worker all of them; here each reads most of what the other workers compiled.
    """
    names = sorted(
        ".".join(path.relative_to(_TESTS.parent).with_suffix("").parts) for path in _TESTS.rglob("test_*.py")
    )
    worker, workers = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = len(names) * worker // workers
    for name in names[first:] + names[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports this
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect tests with the garbage collector off, because it takes as long as the collection of tests, and keep it from
    these objects later. Let it look for garbage less often: a traced kernel makes many objects that live as long as it.

    Read each workload once meanwhile: a dozen modules of tests list all workloads for their parameters.
    """
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("acceld.workloads.discovery.load_workload", cache(load_workload))
            whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
            if whole and "PYTEST_XDIST_WORKER" in os.environ:
                _import_tests_from_another_one_on()
            return (yield)
    finally:
        gc.set_threshold(20_000, 20, 20)
        gc.enable()
        gc.freeze()


def pytest_collection_finish() -> None:
    """Let traces take the modules of the tests for modules of the running program. A trace would look through the names of
    hundreds of them, which takes as long as the rest of a small kernel's trace.
    """
    shims._KEPT.update((name, module) for name, module in sys.modules.items() if name.startswith("tests."))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests outside of ``tests/acceld`` first: most of these wait, and would leave a processor idle at the end."""
    items.sort(key=lambda item: item.path.is_relative_to(_COMPUTING))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers for two processors: about half of a worker's time is waiting for children, clocks and sockets."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed database without rows. Copying it takes a tenth of the time in which a schema is made."""
    path = tmp_path_factory.mktemp("database") / "acceld.db"
    Store.open(path).close_now()
    assert not path.with_name("acceld.db-wal").exists(), "the file is whole"
    return path


@pytest.fixture(scope="session")
def idle_zygotes() -> Iterator[IdleZygotes]:
    """Yield the zygotes that tests have stopped, and end them after the last test."""
    idle = IdleZygotes()
    yield idle
    idle.end()


@pytest.fixture
def shared_zygotes(idle_zygotes: IdleZygotes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share zygotes with other tests. What starts and ends zygotes is tested in tests/acceld/evaluate without this."""
    idle_zygotes.share(monkeypatch)
