"""Combinations of backend, API and chip."""

from typing import Any, get_args, get_type_hints

import pytest

from acceld.config import DevicesConfig, SearchConfig
from acceld.device import HOST
from acceld.errors import UsageError
from acceld.targets import APIS, CHIPS, SIMULATOR, TARGETS, Choice, choose
from acceld.workloads import BASELINE_FILES

DEFAULT = Choice(SIMULATOR, "nki_legacy", "trn1")


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, DEFAULT),
        ({"chip": "trn2"}, Choice(SIMULATOR, "nki_legacy", "trn2")),
        ({"chip": "trn3"}, Choice(SIMULATOR, "nki", "trn3")),
        ({"api": "nki"}, Choice(SIMULATOR, "nki", "trn2")),
        ({"api": "c"}, Choice("cpu", "c", HOST)),
        ({"backend": "cpu"}, Choice("cpu", "c", HOST)),
        ({"backend": "cpu", "api": "numpy"}, Choice("cpu", "numpy", HOST)),
        ({"backend": "neuron"}, Choice("neuron", "nki", "trn2")),
        ({"api": "triton", "chip": "h200"}, Choice("cuda", "triton", "h200")),
    ],
)
def test_what_is_left_open_follows_what_was_asked_for(asked: dict[str, str], chosen: Choice) -> None:
    assert choose(DEFAULT, **asked) == chosen


def test_a_machine_that_measures_is_not_simulated_silently() -> None:
    default = Choice("neuron", "nki", "trn2")
    assert choose(default, api="nki_legacy").backend == "neuron_legacy"


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"offered": ("nki",)}, Choice(SIMULATOR, "nki", "trn2")),
        ({"offered": ("nki", "nki_legacy")}, DEFAULT),
        ({"offered": ("nki",), "runs_on": ("trn3",)}, Choice(SIMULATOR, "nki", "trn3")),
        ({"runs_on": ("trn2", "trn3")}, Choice(SIMULATOR, "nki_legacy", "trn2")),
        ({"offered": ("c",)}, Choice("cpu", "c", HOST)),
    ],
)
def test_what_is_left_open_follows_the_kernels_there_are(asked: dict[str, Any], chosen: Choice) -> None:
    assert choose(DEFAULT, **asked) == chosen


def test_a_chip_that_a_workload_has_no_kernel_for_is_refused_with_what_it_has() -> None:
    with pytest.raises(UsageError, match="no kernel for trn2; it has kernels for nki on trn3"):
        choose(DEFAULT, chip="trn2", offered=("nki",), runs_on=("trn3",))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"api": "nki_legacy", "chip": "trn3"}, ("nki_legacy", "trn3")),
        ({"backend": "cpu", "api": "nki"}, ("cpu", "nki")),
        ({"backend": "cuda", "chip": "trn1"}, ("cuda", "trn1")),
        ({"api": "tritn"}, ("tritn", "triton")),
    ],
)
def test_a_mismatch_names_both_sides(asked: dict[str, str], named: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as refused:
        choose(DEFAULT, **asked)
    assert all(word in str(refused.value) for word in named)


def test_a_chip_on_which_aws_does_not_support_an_api_must_be_asked_for() -> None:
    assert choose(DEFAULT, api="nki").chip == "trn2"
    assert choose(DEFAULT, api="nki", chip="trn1").chip == "trn1"
    assert choose(DEFAULT, chip="trn1", offered=("nki",)).api == "nki"
    assert choose(Choice(SIMULATOR, "nki", "trn2"), chip="trn1", offered=("nki", "nki_legacy")).api == "nki_legacy"
    assert choose(DEFAULT, offered=("nki",), runs_on=("trn1",)).chip == "trn1"
    assert choose(Choice(SIMULATOR, "nki", "trn1")).chip == "trn2", "a default is no request"


def test_configuration_and_workload_files_know_the_same_names() -> None:
    section = get_type_hints(SearchConfig)
    assert set(get_args(section["chip"])) == set(CHIPS)
    assert set(get_args(section["api"])) == set(APIS) == set(BASELINE_FILES)
    assert set(get_args(get_type_hints(DevicesConfig)["backend"])) == set(TARGETS)
