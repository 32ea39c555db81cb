"""A lowered formula computes what numpy does, in both APIs, in a dialect that AWS's tool chain takes."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.random import standard_normal

from acceld.lowering.graph import NotLowered
from acceld.lowering.kernels import lowered
from acceld.lowering.numpy_reference import traced
from acceld.lowering.regions import regions
from acceld.lowering.simplify import simplified
from acceld.lowering.spelling import SPELLINGS, printed
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.verify.verifier import verify
from tests.acceld.lowering.formulas import FORMULAS, Array, Shapes
from tests.acceld.lowering.models import MODELS, Spec
from tests.acceld.lowering.oddities import ODDITIES
from tests.acceld.proposers.rules.kernels import api_of, run


def kernel_of(function: Callable[..., Any], inputs: list[Array], api: str) -> str:
    """Return the source of a lowered reference for such arguments."""
    names = inspect.signature(function).parameters
    arguments = [(name, (array.shape, array.dtype.name)) for name, array in zip(names, inputs, strict=True)]
    return printed(lowered(traced(function, Path(inspect.getfile(function)), arguments), api), api)


def inputs_of(shapes: Shapes, dtype: Any) -> list[Array]:
    """Return normal inputs, the same in every test."""
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


_HELD = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""Types of outputs, by numpy's wide types: a kernel has nothing of 64 bits."""


def each_in_one_api(names: Iterable[str]) -> list[Any]:
    """Return parameters (name, API): every name in the suite in one API, and in the other one in ``make test-all``."""
    return [
        pytest.param(name, api, id=f"{name}-{api}", marks=pytest.mark.slow if (number + turn) % 2 else ())
        for number, name in enumerate(names)
        for turn, api in enumerate(SPELLINGS)
    ]


def right(function: Callable[..., Any], source: str, inputs: list[Array], tolerance: float) -> None:
    """Check every output of a kernel against numpy in float64."""
    wide = [array.astype(np.float64) if array.dtype == np.float32 else array.copy() for array in inputs]
    with np.errstate(all="ignore"):
        expected = function(*wide)
    found = run_all(source, *inputs)
    every = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(found, every, strict=True):
        value = np.asarray(other, dtype=np.float64)
        if wide[0].dtype == np.float64 or wide[0].dtype.kind != "f":
            assert np.asarray(one).dtype == _HELD.get(np.asarray(other).dtype.name, np.asarray(other).dtype.name)
        difference = np.asarray(one, dtype=np.float64).reshape(value.shape) - value
        assert np.linalg.norm(difference) <= tolerance * np.linalg.norm(value)


def run_all(source: str, *inputs: Array) -> Any:
    """Return a kernel's outputs. Fails if the kernel is not legal."""
    specs = [TensorSpec(array.shape, array.dtype.name) for array in inputs]
    program = trace(source, specs, api=api_of(source), chip="trn2")
    assert verify(program) == ()
    return execute(program, inputs, ExecuteOptions(checks_ranges=True))


@pytest.mark.parametrize("api", SPELLINGS)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_lowered_formula_computes_what_numpy_does(name: str, api: str) -> None:
    function, shapes, dtype = FORMULAS[name]
    inputs = inputs_of(shapes, dtype)
    source = kernel_of(function, inputs, api)
    if api == "nki":
        in_dialect(source)
    right(function, source, inputs, 1e-5 if dtype == np.float32 else 1e-2)


def drawn(specs: tuple[Spec, ...]) -> list[Array]:
    """Return the arguments of a model's reference, the same in every test."""
    generator = np.random.default_rng(0)
    found: list[Array] = []
    for spec in specs:
        if spec and isinstance(spec[0], str):
            dtype, *shape, low, high = spec
            found.append(generator.integers(low, high, shape).astype(dtype))
        else:
            found.append(np.asarray(generator.standard_normal(spec), dtype=np.float32))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_lowered_model_computes_what_numpy_does(name: str) -> None:
    function, specs = MODELS[name]
    inputs = drawn(specs)
    source = kernel_of(function, inputs, "nki")
    in_dialect(source)
    right(function, source, inputs, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_lowered_model_computes_what_numpy_does_in_the_legacy_api(name: str) -> None:
    function, specs = MODELS[name]
    inputs = drawn(specs)
    source = kernel_of(function, inputs, "nki_legacy")
    right(function, source, inputs, 1e-5)


@pytest.mark.parametrize("name", ODDITIES)
def test_a_lowered_kernel_does_what_numpy_does_at_its_edges(name: str) -> None:
    function, specs = ODDITIES[name]
    inputs = drawn(specs)
    source = kernel_of(function, inputs, "nki")
    in_dialect(source)
    right(function, source, inputs, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ODDITIES)
def test_a_lowered_kernel_does_what_numpy_does_at_its_edges_in_the_legacy_api(name: str) -> None:
    function, specs = ODDITIES[name]
    inputs = drawn(specs)
    source = kernel_of(function, inputs, "nki_legacy")
    right(function, source, inputs, 1e-5)


INSTRUCTIONS = frozenset(
    "activation dma_copy iota max8 memset nc_find_index8 nc_matmul nc_transpose reciprocal reduce_cmd scalar_tensor_tensor tensor_copy "
    "tensor_copy_predicated tensor_reduce tensor_scalar tensor_tensor tensor_tensor_scan affine_select engine".split()
)


def in_dialect(source: str) -> None:
    """Check that a kernel keeps to what AWS's tool chain takes: few instructions, no division, no operator on a tile."""
    nodes = list(ast.walk(ast.parse(source)))
    tiles = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("divide", "mod", "broadcast", "broadcast_to")
            if isinstance(node.value, ast.Name) and node.value.id == "nisa":
                assert node.attr in INSTRUCTIONS
        if isinstance(node, ast.BinOp | ast.Compare):
            operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
            assert not any(isinstance(one, ast.Name) and one.id in tiles for one in operands)


def test_a_kernel_reads_as_the_reference_does() -> None:
    function, shapes, dtype = FORMULAS["layer_norm_product"]
    text = kernel_of(function, inputs_of(shapes, dtype), "nki")
    assert "# mean = x.mean(axis=1, keepdims=True)" in text
    assert (
        "    mean = nl.ndarray((128, 1)" in " ".join(text.split("\n        ")) or "mean = nl.ndarray((128, 1)" in text
    )
    assert len(text.splitlines()) <= 150


@pytest.mark.parametrize("api", SPELLINGS)
def test_a_wide_image_is_convolved_and_pooled_in_one_nest(api: str) -> None:
    function, shapes, dtype = FORMULAS["a wide image"]
    text = kernel_of(function, inputs_of(shapes, dtype), api)
    assert text.count("_hbm") == 1, "nothing but the result goes through HBM"


def block_of_a_model(o: Array, x: Array, wo: Array, g: Array, wg: Array, wu: Array, wd: Array) -> Any:
    h = x + o @ wo
    n = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-5) * g
    a = n @ wg
    return h + (a / (1 + np.exp(-a)) * (n @ wu)) @ wd


@pytest.mark.parametrize(("width", "held"), [(64, 0), (2048, 4)])
def test_products_whose_operands_would_be_loaded_in_turn_are_apart(width: int, held: int) -> None:
    inner = 11 * width // 4
    shapes = [(2048, width)] * 2 + [(width, width), (width,), (width, inner), (width, inner), (inner, width)]
    names = inspect.signature(block_of_a_model).parameters
    arguments = [(name, (shape, "bfloat16")) for name, shape in zip(names, shapes, strict=True)]
    text = printed(lowered(traced(block_of_a_model, Path(__file__), arguments), "nki"), "nki")
    assert text.count("buffer=nl.private_hbm") == held


def branch_on_data(x: Array) -> Any:
    return x if x.sum() > 0 else -x


def index_by_truth(x: Array) -> Any:
    return x[True]


def index_by_mask(x: Array, y: Array) -> Any:
    return x[y > 0]


def length_of_a_mask(x: Array) -> Any:
    return x * len(x[x > 0])


def sum_over_two_masks(x: Array, y: Array) -> Any:
    return (x[x > 0] + y[y > 0]).sum()


def part_of_a_mask(x: Array) -> Any:
    return x[x > 0][:2]


def unread_argument(x: Array) -> Any:
    return np.var(x, axis=0, mean=np.mean(x, axis=0, keepdims=True))


def unread_argument_of_a_ufunc(x: Array) -> Any:
    return np.exp(x, where=x > 0)


def unread_argument_of_a_method(x: Array) -> Any:
    return x.std(axis=0, mean=x.mean(axis=0, keepdims=True))


def unread_argument_of_a_constructor(x: Array) -> Any:
    return x + np.array(x, ndmin=3)


def clipped_take(x: Array) -> Any:
    return np.take(x, np.argmax(x, axis=0), mode="clip")


def difference_of_truth_values(x: Array) -> Any:
    return (x > 0) - (x > 1)


def division_by_an_array(x: Array) -> Any:
    return x // (x + 1.0)


def an_order_of_equals_that_numpy_does_not_define(x: Array) -> Any:
    return (x > 0).astype(int).argsort()


def a_system_of_equations(x: Array) -> Any:
    return np.linalg.solve(x, x[0])


def distinct_values(x: Array) -> Any:
    return np.unique(x)


def positions_of_what_is_not_zero(x: Array) -> Any:
    return x.nonzero()[0]


def a_complex_transform(x: Array) -> Any:
    return np.abs(np.fft.rfft(x))


def parts_left_out_by_values(x: Array) -> Any:
    return np.delete(x, x.argmax(), axis=0)


def cross_products_in_the_plane(x: Array) -> Any:
    return np.cross(x[:, :2], x[:, 2:])


def a_constant_that_is_no_number(x: Array) -> Any:
    return np.where(x > 0, np.nan, x)


def a_greatest_of_no_elements(x: Array) -> Any:
    return x[4:].max()


def a_number_of_bins_by_a_rule(x: Array) -> Any:
    return np.histogram(x, bins="auto")[0]


def a_method_without_lowering(x: Array) -> Any:
    return x.tobytes()


def a_view_of_other_bits(x: Array) -> Any:
    return x.view(np.int32) & 1


def random_numbers(x: Array) -> Any:
    return x + np.random.default_rng(0).standard_normal(x.shape)


def random_numbers_of_an_imported_function(x: Array) -> Any:
    return x + standard_normal((4, 4))


def segments_at_positions_of_an_input(x: Array) -> Any:
    return np.add.reduceat(x, x[0].astype(int))


def rows_of_a_row(x: Array) -> Any:
    return np.apply_along_axis(lambda row: row[row.argsort()], 1, x)


def product_of_truth_values(x: Array) -> Any:
    return np.einsum("ij,jk->ik", x > 0, x > 0)


def sine_of_a_large_known_angle(x: Array) -> Any:
    return x * np.sin(np.arange(4) * 1e6)


def a_branch_on_an_element(x: Array) -> Any:
    return x if 1.0 in x else -x


def other_order(x: Array) -> Any:
    return x.reshape((-1,), order="F")


def spectral_norm(x: Array) -> Any:
    return np.linalg.norm(x, 2) * x


def partly_sorted_rows(x: Array) -> Any:
    return np.partition(x, 2, axis=1)


def a_long_argsort(x: Array) -> Any:
    return np.argsort(np.tile(x, (1, 200)))


def a_long_sort(x: Array) -> Any:
    return np.sort(np.tile(x, (1, 2000)))


def a_failure_of_the_reference_itself(x: Array) -> Any:
    return x * {"rows": 4}["columns"]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (a_failure_of_the_reference_itself, "KeyError: 'columns'"),
        (branch_on_data, "branch on the values"),
        (index_by_mask, "indexing by a mask"),
        (index_by_truth, "an index of True or False"),
        (length_of_a_mask, "indexing by a mask"),
        (sum_over_two_masks, "indexing by a mask"),
        (part_of_a_mask, "indexing by a mask"),
        (other_order, "an array with order='F'"),
        (spectral_norm, "np.linalg.norm"),
        (partly_sorted_rows, "np.partition is not lowered but for its elements at kth"),
        (a_long_argsort, r"np.argsort of more than 512 elements \(here 800\)"),
        (a_long_sort, r"np.sort of more than 4096 elements \(here 8000\)"),
        (unread_argument, r"np.var\(mean=...\) is not lowered"),
        (unread_argument_of_a_ufunc, r"np.exp\(where=...\) is not lowered"),
        (unread_argument_of_a_method, r"np.std\(mean=...\) is not lowered"),
        (unread_argument_of_a_constructor, r"np.array\(ndmin=...\) is not lowered"),
        (clipped_take, r"np.take\(mode='clip'\) is not lowered"),
        (difference_of_truth_values, "numpy boolean subtract"),
        (division_by_an_array, "np.floor_divide of floats by anything but a positive number is not lowered"),
        (a_view_of_other_bits, r"ndarray.view is not lowered; use x.copy\(\)"),
        (random_numbers, r"np.random.default_rng is not lowered, because a kernel has no random numbers"),
        (random_numbers_of_an_imported_function, "standard_normal is not lowered, because a kernel has no random"),
        (segments_at_positions_of_an_input, "np.add.reduceat at positions that depend on an input is not lowered"),
        (rows_of_a_row, "indexing a row by an array of positions in np.apply_along_axis is not lowered"),
        (an_order_of_equals_that_numpy_does_not_define, "np.argsort of whole numbers without kind='stable'"),
        (a_system_of_equations, "np.linalg.solve is not lowered"),
        (distinct_values, "np.unique, whose shape depends on values, is not lowered"),
        (positions_of_what_is_not_zero, "np.nonzero, whose shape depends on values, is not lowered"),
        (a_complex_transform, "np.fft.rfft is not lowered"),
        (parts_left_out_by_values, "np.delete at positions that depend on an input is not lowered"),
        (cross_products_in_the_plane, "np.cross of vectors that do not have three elements is not lowered"),
        (a_constant_that_is_no_number, "NaN as a constant is not lowered"),
        (a_greatest_of_no_elements, "the max of an array without elements is not lowered"),
        (a_number_of_bins_by_a_rule, r"np.histogram\(bins='auto'\) is not lowered"),
        (a_method_without_lowering, "ndarray.tobytes is not lowered"),
        (product_of_truth_values, "np.einsum of truth values is not lowered"),
        (a_branch_on_an_element, "'in' an array is not lowered; use np.any"),
        (sine_of_a_large_known_angle, "more than 32768 turns"),
    ],
)
def test_what_is_not_lowered_is_named_with_its_line(function: Callable[..., Any], what: str) -> None:
    names = list(inspect.signature(function).parameters)
    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(NotLowered, match=rf"line {line}: .*{what}") as found:
        traced(function, Path(__file__), [(name, ((4, 4), "float32")) for name in names])
    assert re.search("is not lowered(?!.*[;:] )", str(found.value)) is None, "the message says what to write instead"


def a_table_of_least_ways(x: Array) -> Any:
    table = np.full((x.shape[0], 9, 9), 1e8, x.dtype)
    table[:, 0, 0] = 0
    for i, j in np.ndindex(8, 8):
        before = np.minimum(np.minimum(table[:, i, j], table[:, i, j + 1]), table[:, i + 1, j])
        table[:, i + 1, j + 1] = x[:, i, j] + before
    return table[:, -1, -1]


def test_a_region_waits_only_for_the_stores_that_it_reads() -> None:
    graph = traced(a_table_of_least_ways, Path(__file__), [("x", ((3, 8, 8), "float32"))])
    assert max(len(region.before) for region in regions(simplified(graph)).regions) <= 8
    inputs = inputs_of(((3, 8, 8),), np.float32)
    right(a_table_of_least_ways, kernel_of(a_table_of_least_ways, inputs, "nki"), inputs, 1e-5)


def division_by_nothing(x: Array) -> Any:
    return x / (x.shape[0] - 4)


def test_a_division_by_the_number_0_is_refused_with_its_line() -> None:
    line = inspect.getsourcelines(division_by_nothing)[1] + 1
    with pytest.raises(NotLowered, match=rf"line {line}: a division by the number 0 is not lowered; "):
        kernel_of(division_by_nothing, [np.zeros((4, 4), np.float32)], "nki")


def test_an_output_without_elements_is_refused() -> None:
    with pytest.raises(NotLowered, match=r"an output of shape \(4, 0\), without elements, is not lowered; "):
        traced(lambda x: (x, x[:, 4:]), Path(__file__), [("x", ((4, 4), "float32"))])


def test_an_input_whose_view_is_stored_to_keeps_its_values_for_earlier_reads() -> None:
    def forward(x: Array) -> Any:
        y = x.copy()
        first = y[0:2] * 2.0
        y[0:2] = 5.0
        return first + y[0:2]

    text = printed(lowered(traced(forward, Path(__file__), [("x", ((128, 8), "float32"))]), "nki"), "nki")
    x = np.random.default_rng(0).standard_normal((128, 8)).astype(np.float32)
    assert np.allclose(np.asarray(run(text, x)).reshape(2, 8), x[0:2] * 2 + 5)


def test_branches_on_shapes_are_followed() -> None:
    def forward(x: Array) -> Any:
        return x * 2.0 if x.shape[0] > 100 else x + 1.0

    texts = [
        printed(lowered(traced(forward, Path(__file__), [("x", ((rows, 8), "float32"))]), "nki"), "nki")
        for rows in (64, 128)
    ]
    assert "nl.add" in texts[0] and "nl.multiply" in texts[1]


def test_the_work_of_finding_regions_grows_as_the_reference_does() -> None:
    def forward(x: Array, w: Array, b: Array) -> Any:
        h = x[0]
        for t in range(len(x)):
            both = h @ w + x[t] + b
            h = np.tanh(both) * (1.0 / (1.0 + np.exp(-both)))
        return h

    def calls(steps: int) -> int:
        """Return how many Python functions are called to divide the graph of a loop into regions."""
        specs = [("x", ((steps, 8, 16), "float32")), ("w", ((16, 16), "float32")), ("b", ((16,), "float32"))]
        graph = simplified(traced(forward, Path(__file__), specs))
        counted = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            regions(graph)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(160) < 2.3 * calls(80)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_8_bit_floats_are_multiplied_and_added(dtype: Any) -> None:
    def forward(x: Array, w: Array) -> Any:
        wide = np.float64 if x.dtype == np.float64 else np.float32
        return x.astype(wide) @ w.astype(wide) * 0.5 + np.maximum(x.astype(wide), 0).sum(axis=1, keepdims=True)

    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(dtype) for shape in ((40, 64), (64, 24)))
    found = run_all(kernel_of(forward, [x, w], "nki"), x, w)
    expected = forward(x.astype(np.float64), w.astype(np.float64))
    assert np.linalg.norm(np.asarray(found).reshape(40, 24) - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_product_of_arrays_of_two_types_is_legal() -> None:
    def forward(x: Array, w: Array) -> Any:
        s = np.exp(x).astype(ml_dtypes.bfloat16)
        return (s / np.sum(s, axis=-1, keepdims=True)) @ w

    x, w = inputs_of(((40, 64), (64, 24)), np.float32)
    right(forward, kernel_of(forward, [x, w], "nki"), [x, w], 1e-2)
