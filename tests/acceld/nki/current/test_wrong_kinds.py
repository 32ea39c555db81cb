"""Every function of the current API answers arguments of a wrong kind with a result, or with an error of acceld that names
the call.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import KernelCrash, KernelFailure, LegalityError
from acceld.nki.frontend.core.context import current
from acceld.nki.frontend.current import collectives, isa, language
from acceld.nki.frontend.current.surface import surface
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_arguments import X, ran, traced

NAMESPACES = {
    "nki.isa": isa.namespace(),
    "nki.language": language.namespace(),
    "nki.collectives": collectives.namespace(),
}
FUNCTIONS = [
    (module, name)
    for module, functions in surface().items()
    for name, state in functions.items()
    if state.startswith("supported") and inspect.isfunction(NAMESPACES[module][name])
]
KERNEL = """
import nki.isa as nisa
import nki.language as nl
from probes import probe

def kernel(x):
    tile = nl.ndarray((128, 64), dtype=nl.float32)
    nisa.dma_copy(dst=tile, src=x)
    probe({"tile": tile, "x": x, "register": nisa.register_alloc(3)})
    return x
"""
ODD: tuple[object, ...] = (5, 2.5, "text", None, (1, 2), True, "<tile>", "<x>", "<register>")
"""Values for each parameter; ``<name>`` stands for what the kernel has of that name."""


def ways(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments: every value for all parameters at once, and for each beside tiles and beside numbers."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    needed = [one.name for one in parameters if one.default is one.empty]
    yield from (dict.fromkeys(needed, value) for value in ODD)
    for one in parameters:
        yield from (dict.fromkeys(needed, base) | {one.name: value} for value in ODD for base in ("<tile>", 3))


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_arguments_of_a_wrong_kind_are_answered_by_the_call(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function: Any = NAMESPACES[module][name]
    raw: list[tuple[dict[str, Any], str]] = []
    tried = 0

    def probe(held: dict[str, object]) -> None:
        nonlocal tried
        for way in ways(function):
            given = {
                key: held.get(value[1:-1], value) if isinstance(value, str) else value for key, value in way.items()
            }
            if current().broken is not None:  # a loop was left by an error: every later call repeats that one
                return
            tried += 1
            try:
                function(**given)
            except KernelFailure as failure:
                if isinstance(failure, KernelCrash) or name not in f"{failure}":
                    raw.append((way, f"{failure}"))
            except Exception as error:  # noqa: BLE001 - the point of the test: no other error may come
                raw.append((way, f"{type(error).__name__}: {error}"))

    probes = ModuleType("probes")
    probes.__dict__["probe"] = probe
    monkeypatch.setitem(sys.modules, "probes", probes)
    with contextlib.suppress(KernelFailure):  # what was traced until then need not be a whole kernel
        trace(KERNEL, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    assert tried
    assert raw == []


METHODS = (
    "slice select permute broadcast expand_dim squeeze_dim reshape_dim flatten_dims reshape rearrange vector_select ap "
    "view reinterpret_cast indirect __getitem__"
).split()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_tensor_answers_arguments_of_a_wrong_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw: list[str] = []
    tried = 0

    def probe(held: dict[str, Any]) -> None:
        nonlocal tried
        for tensor in (held["tile"], held["x"]):
            method = getattr(tensor, name)
            needed = [one.name for one in inspect.signature(method).parameters.values() if one.default is one.empty]
            words = [one for one in needed if one not in ("more", "kwargs")]
            for values in itertools.product((*ODD, [[1]], [["a", "b"]], 0), repeat=len(words)):
                tried += 1
                given = [held.get(one[1:-1], one) if isinstance(one, str) else one for one in values]
                try:
                    method(*given)
                except KernelCrash as failure:
                    raw.append(f"{values}: {failure}")
                except KernelFailure:
                    pass
                except Exception as error:  # noqa: BLE001 - the point of the test: no other error may come
                    raw.append(f"{values}: {type(error).__name__}: {error}")

    probes = ModuleType("probes")
    probes.__dict__["probe"] = probe
    monkeypatch.setitem(sys.modules, "probes", probes)
    with contextlib.suppress(KernelFailure):  # what was traced until then need not be a whole kernel
        trace(KERNEL, [TensorSpec((128, 64), "float32")], api="nki", chip="trn3")
    assert tried
    assert raw == []


def test_a_member_that_an_enumeration_lacks_is_named_beside_those_it_has() -> None:
    with pytest.raises(
        KernelCrash, match="there is no 'fast' among unknown, tensor, scalar, gpsimd, vector, sync, dma"
    ):
        traced("held = nisa.engine.fast")


@pytest.mark.parametrize(
    "asked", ["register < 5", "5 >= register", "register == 3", "register != 3", "register / 2", "~register"]
)
def test_a_register_is_not_compared_while_tracing(asked: str) -> None:
    with pytest.raises(
        LegalityError, match="can not be applied to a register: its value is not known while tracing"
    ) as caught:
        traced(f"register = nisa.register_alloc(3)\nheld = {asked}")
    assert caught.value.rule == "control_flow"


def test_a_number_is_no_register_to_store() -> None:
    one = "one = nl.ndarray((1, 1), dtype=nl.int32)\n"
    with pytest.raises(LegalityError, match="operand 'src' of 'scalar_store' must be a register, not int"):
        traced(one + "nisa.scalar_store(one, 5)")
    with pytest.raises(LegalityError, match="missing a required argument: 'src'"):
        traced("nisa.scalar_store(5)")
    with pytest.raises(LegalityError, match="'add' can not combine a register with float"):
        traced("register = nisa.register_alloc(3)\nheld = register + 1.5")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_is_copied_where_a_predicate_holds(reverse: bool) -> None:
    body = f"""
where = nl.ndarray((128, 64), dtype=nl.uint8)
nisa.tensor_scalar(dst=where, data=tile, op0=nl.greater, operand0=0.0)
nisa.tensor_copy_predicated(dst=tile, src=7.5, predicate=where, reverse_pred={reverse})
nisa.dma_copy(dst=out, src=tile)
"""
    np.testing.assert_array_equal(ran(body), np.where((X > 0) != reverse, np.float32(7.5), X))
    assert verify(traced(body)) == ()


def test_a_number_to_copy_has_the_kind_of_the_destination() -> None:
    body = "nisa.tensor_copy_predicated(dst=tile, src=7, predicate=tile)"
    with pytest.raises(LegalityError, match="the number 7 as 'src' of 'tensor_copy_predicated' to float32"):
        traced(body)
