"""The user's folders and the Neuron software of the whole suite, settings of the property tests (the same examples in every
run of the suite, fresh ones under ``make fuzz``), and how much processor the suite itself needs.
"""

from __future__ import annotations

import atexit
import gc
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

_COMPUTING = Path(__file__).parent / "acceld"
_USER = tempfile.TemporaryDirectory(prefix="acceld-user-")
atexit.register(_USER.cleanup)
# Tests neither read nor change the user's own records and data sets. Modules that are imported later may copy the
# environment, so it is set here and not in a fixture.
os.environ |= {name: os.path.join(_USER.name, name.lower()) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}

from acceld.devices.neuron.tools import detection
from acceld.nki.frontend import shims
from acceld.store.database import Store
from acceld.workloads import load_workload

# A Neuron package found on this machine would change which kernels are refused.
detection.VENVS = Path(os.devnull) / "none"
detection.HOME = lambda: detection.VENVS


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests with the garbage collector off, because it takes as long as the collection of tests, and keep it from
    these objects later. Let it look for garbage less often: a traced kernel makes many objects that live as long as it.

    Read each workload once meanwhile: a dozen modules of tests list all workloads for their parameters.
    """
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("acceld.workloads.discovery.load_workload", cache(load_workload))
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
