"""Load workload.toml, with errors that name file, key and the nearest known key."""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from acceld.errors import WorkloadError, nearest_of
from acceld.workloads.checks import METAMORPHIC_KINDS
from acceld.workloads.expressions import evaluate
from acceld.workloads.records import (
    BASELINE_FILES,
    DISTRIBUTIONS,
    DTYPE_BYTES,
    Anchor,
    Argument,
    DeclaredWork,
    Definition,
    Distribution,
    DistributionState,
    Metamorphic,
    Output,
    Precision,
    Variant,
    WeightedShape,
    Workload,
    shape_text,
)

FILE = "workload.toml"
_MOST_WEIGHT = 1e9
"""Greatest weight of a shape. Beside a greater weight the weights of other shapes would be lost to rounding."""
_LONGEST_LABEL = 100
"""Greatest number of characters of a workload's name and of its family."""
INDEX_KINDS = ("permutation", "indptr")
"""Distributions of index arrays, which no derived distribution changes."""
_TOP = (
    "name family description precision tolerance tags values arguments outputs distributions work baselines "
    "variants anchors metamorphic nan reference drawn rows kernel sample hidden shapes weight flashinfer"
).split()


class _Table:
    """One table of workload.toml. It checks types as keys are read, and refuses keys that nobody read."""

    def __init__(self, path: Path, where: str, data: object) -> None:
        self.path, self.where = path, where
        if not isinstance(data, dict):
            raise WorkloadError(f"{path}: {where or 'the file'} must be a table")
        self.data: dict[str, object] = data

    def fail(self, key: str, problem: str, hint: str = "") -> WorkloadError:
        place = f"{self.where} " if self.where else ""
        return WorkloadError(f"{self.path}: {place}{key} {problem}", hint=hint)

    def only(self, known: Iterable[str]) -> None:
        """Raise WorkloadError if the table has a key that is not in ``known``."""
        known = list(known)
        for key in self.data:
            if key not in known:
                hint = nearest_of(key, sorted(known))
                raise self.fail(f"key {key!r}", "is unknown.", hint)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if value is None:
            raise self.fail(f"key {key!r}", "is missing")
        if not isinstance(value, str):
            raise self.fail(key, f"must be text, not {value!r}")
        self._check_printable(key, value)
        return value

    def label(self, key: str, default: str) -> str:
        """Return a name that may be part of a file's path, or ``default`` if the file gives none."""
        value = self.text(key, default)
        if key not in self.data:
            return value
        if not value or len(value) > _LONGEST_LABEL or value.startswith(".") or "/" in value or "\\" in value:
            hint = f"Use 1 to {_LONGEST_LABEL} characters without slashes, and no period in front."
            raise self.fail(key, f"can not be {value[:_LONGEST_LABEL]!r}.", hint)
        return value

    def _check_printable(self, key: str, value: str) -> None:
        """Raise WorkloadError if a text has a control character, which a terminal would obey."""
        found = next((one for one in value if not one.isprintable() and one not in "\n\t"), None)
        if found is not None:
            raise self.fail(key, f"has the control character {found!r}.", "Take it out.")

    def number(self, key: str, default: float) -> float:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(key, f"must be a number, not {value!r}")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"must be a whole number, not {value!r}")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, not {value!r}")
        return value

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        value = self.text(key, default)
        known = list(known)
        if value not in known:
            raise self.fail(key, f"{value!r} is unknown.", nearest_of(value, sorted(known)))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(key, f"must be a list of texts, not {value!r}")
        for one in value:
            self._check_printable(key, one)
        return tuple(value)

    def table(self, key: str) -> _Table:
        where = f"[{self.where.strip('[]')}.{key}]" if self.where else f"[{key}]"
        return _Table(self.path, where, self.data.get(key, {}))

    def extents(self, key: str, values: Mapping[str, int], default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a shape whose extents the file gives as whole numbers or expressions over the symbols."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            raise self.fail(key, "must be a list of whole numbers and symbols, such as ['M', 128]")
        shape = tuple(self.expression(key, item, values) for item in value)
        if any(extent <= 0 for extent in shape):
            raise self.fail(key, f"is {shape}; every extent must be positive")
        return shape

    def axes(self, key: str) -> tuple[str, ...]:
        """Return the extents of a shape as the file writes them: symbols, expressions or numbers."""
        value = self.data.get(key)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    def expression(self, key: str, value: object, values: Mapping[str, int]) -> int:
        if not isinstance(value, str | int):
            raise self.fail(key, f"must hold whole numbers and expressions, not {value!r}")
        try:
            return evaluate(value, values)
        except ValueError as error:
            raise self.fail(key, f"can not be worked out: {error}") from error


def load_workload(folder: Path | str, instead: Mapping[str, int] | None = None) -> Workload:
    """Return the workload in ``folder``. Raise WorkloadError, which names the file, the key, and the nearest known
    key.

    ``instead`` gives some symbols other values, which change shapes and hash.
    """
    folder = Path(folder)
    path = folder / FILE
    try:
        raw = path.read_bytes()
        data = tomllib.loads(raw.decode("utf-8"))
    except FileNotFoundError as error:
        raise WorkloadError(f"{path}: there is no such file", hint="`acceld init KERNEL.py` writes one.") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WorkloadError(f"{path}: {error}", hint="the file must be TOML") from error
    top = _Table(path, "", data)
    top.only(_TOP)
    values = {**_values(top.table("values")), **(instead or {})}
    arguments = _arguments(top.table("arguments"), values)
    names = [argument.name for argument in arguments]
    reference = _reference(top, folder)
    digest = hashlib.sha256(raw)
    digest.update(b"\0" + reference.read_bytes() if reference else b"")
    for symbol, extent in sorted(values.items()) if instead is not None else ():
        digest.update(f"\0{symbol}={extent}".encode())
    kernel = top.table("kernel")
    kernel.only(("entry", "grid", "lnc", "chips", "mutates"))
    tolerance = top.number("tolerance", 2e-5)
    if not 0 < tolerance < 1:
        raise top.fail("tolerance", f"is {tolerance}; it must lie between 0 and 1")
    for name in kernel.texts("mutates"):
        if name not in names:
            raise kernel.fail("mutates", f"names {name!r}, which is not an argument.", nearest_of(name, names))
    shapes = _shapes(top, _values(top.table("values")))
    outputs = _outputs(top.table("outputs"), values)
    return Workload(
        name=top.label("name", folder.name),
        family=top.label("family", folder.parent.name),
        description=top.text("description"),
        folder=folder,
        arguments=arguments,
        outputs=outputs,
        values=values,
        work=_work(top.table("work"), values) if "work" in data else None,
        tolerance=tolerance,
        precision=Precision(top.choice("precision", list(Precision), Precision.FP32_STRICT)),
        distributions=_distributions(top.table("distributions")),
        baselines=_baselines(top.table("baselines"), folder),
        variants=_variants(top.table("variants"), folder),
        anchors=_anchors(top),
        tags=frozenset(top.texts("tags")),
        metamorphic=_metamorphic(top, names),
        reference=reference,
        hash=digest.hexdigest(),
        entry=kernel.text("entry", "") or None,
        grid=kernel.extents("grid", values, ()),
        lnc=kernel.whole("lnc", 1),
        chips=kernel.texts("chips"),
        mutates=kernel.texts("mutates"),
        sample=_file(top, "sample", folder) if "sample" in data else None,
        hidden=_hidden(top, values) if instead is None else (),
        shapes=shapes if instead is None else (),
        weight=_weight(top) if instead is None else 1.0,
        reshaped=instead is not None,
        nan=top.flag("nan"),
        definition=_definition(top.table("flashinfer"), values) if "flashinfer" in data else None,
        drawn=top.flag("drawn"),
        rows=_rows(top, outputs),
    )


def address_of(workload: Workload) -> dict[str, Any]:
    """Return what :func:`load_unchanged` needs to load a workload in another process, as data for JSON."""
    values = dict(workload.values) if workload.reshaped else None
    return {"workload": str(workload.folder), "hash": workload.hash, "values": values}


def load_unchanged(address: Mapping[str, Any]) -> Workload:
    """Return the workload of an address that :func:`address_of` made. Raise WorkloadError if the workload's files were
    changed since.

    Processes that make data and expected outputs load the workload in this way, because their results are stored under
    the hash of the workload's files.
    """
    found = load_workload(address["workload"], address["values"])
    if found.hash != address["hash"]:
        raise WorkloadError(
            f"the files of workload {found.name!r} were changed while a kernel was evaluated",
            hint="evaluate the kernel again; a run of the former files can not continue",
        )
    return found


def hidden_shapes(workload: Workload) -> tuple[Workload, ...]:
    """Return the workload in each shape that it declares under ``[[hidden]]``."""
    return tuple(load_workload(workload.folder, values) for values in workload.hidden)


def every_shape(workload: Workload) -> tuple[tuple[WeightedShape, Workload], ...]:
    """Return (shape with its weight, workload in that shape) for every shape that a kernel must support, the main
    shape first.
    """
    named = {symbol for shape in workload.shapes for symbol in shape.values}
    own = WeightedShape(
        {symbol: workload.values[symbol] for symbol in workload.values if symbol in named}, workload.weight
    )
    return ((own, workload), *((one, load_workload(workload.folder, one.values)) for one in workload.shapes))


def _file(table: _Table, key: str, folder: Path) -> Path:
    path = folder / table.text(key)
    if not path.is_file():
        raise table.fail(
            key, f"names {path.name!r}, which is not in {folder}", "Write that file, or take out the line."
        )
    return path


def _reference(top: _Table, folder: Path) -> Path | None:
    if top.data.get("reference") is False:
        return None
    if "reference" in top.data:
        return _file(top, "reference", folder)
    path = folder / "reference.py"
    if not path.is_file():
        raise top.fail("reference", f"is missing: {path} does not exist", "Write it, or say `reference = false`.")
    return path


def _values(table: _Table) -> dict[str, int]:
    values: dict[str, int] = {}
    for key, value in table.data.items():
        if isinstance(value, bool) or not isinstance(value, int) or not key.isidentifier():
            raise table.fail(key, f"must be a symbol and its size, such as M = 128, not {value!r}")
        values[key] = value
    return values


def _arguments(table: _Table, values: Mapping[str, int]) -> tuple[Argument, ...]:
    if not table.data:
        raise table.fail("", "must hold at least one argument, such as [arguments.x]")
    return tuple(_argument(name, table.table(name), values) for name in table.data)


def _argument(name: str, table: _Table, values: Mapping[str, int]) -> Argument:
    if "value" in table.data:
        table.only(("value",))
        value = table.data["value"]
        if not isinstance(value, int | float):
            raise table.fail("value", f"must be a number, not {value!r}")
        return Argument(name, value=value)
    table.only(("shape", "dtype", "distribution", "kernel_shape", "whole"))
    shape = table.extents("shape", values)
    return Argument(
        name,
        shape,
        table.choice("dtype", DTYPE_BYTES, "float32"),
        _distribution(table, values),
        None,
        _kernel_shape(table, shape, values),
        table.axes("shape"),
        table.flag("whole"),
    )


def _kernel_shape(table: _Table, shape: tuple[int, ...], values: Mapping[str, int]) -> tuple[int, ...]:
    layout = table.extents("kernel_shape", values, shape)
    if math.prod(layout) != math.prod(shape):
        raise table.fail("kernel_shape", f"is {layout}, which does not hold as many elements as {shape}")
    return layout


def _distribution(table: _Table, values: Mapping[str, int]) -> Distribution:
    given = table.data.get("distribution", "normal")
    inner = _Table(table.path, table.where, {"kind": given} if isinstance(given, str) else given)
    inner.only(("kind", "mean", "std", "low", "high", "absolute", "fixed", "over", "values"))
    kind = inner.choice("kind", ("normal", "uniform", "integers", "values", *INDEX_KINDS))
    listed = inner.data.get("values", [])
    numbers = isinstance(listed, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and not math.isnan(one) for one in listed
    )
    if not numbers or bool(listed) != (kind == "values"):
        raise inner.fail(
            "values",
            f'is {listed!r}; kind = "values" needs a list of numbers, such as [0, -1e9], and no other kind has it',
        )
    std, low, high = inner.number("std", 1.0), _bound(inner, "low", 0.0, values), _bound(inner, "high", 1.0, values)
    if std < 0:
        raise inner.fail("std", f"is {std:g}; it must be at least 0")
    if (kind == "uniform" and low > high) or (kind == "integers" and int(low) >= int(high)):
        raise inner.fail("high", f"is {high:g}; it must be greater than low, which is {low:g}")
    return Distribution(
        kind,
        inner.number("mean", 0.0),
        std,
        low,
        high,
        inner.flag("absolute"),
        inner.flag("fixed") or kind in INDEX_KINDS,
        inner.text("over", ""),
        tuple(map(float, listed)) if isinstance(listed, list) else (),
    )


def _bound(table: _Table, key: str, default: float, values: Mapping[str, int]) -> float:
    """Return a number that the file gives as a number or as an expression over the symbols."""
    if isinstance(table.data.get(key), str):
        return float(table.expression(key, table.data[key], values))
    return table.number(key, default)


def _outputs(table: _Table, values: Mapping[str, int]) -> tuple[Output, ...]:
    if not table.data:
        raise table.fail("", "must hold at least one output, such as [outputs.out]")
    outputs = []
    for name in table.data:
        one = table.table(name)
        one.only(("shape", "dtype", "kernel_shape"))
        shape = one.extents("shape", values)
        dtype = one.choice("dtype", DTYPE_BYTES, "float32")
        outputs.append(Output(name, shape, dtype, _kernel_shape(one, shape, values), one.axes("shape")))
    return tuple(outputs)


def _rows(top: _Table, outputs: Iterable[Output]) -> tuple[str, ...]:
    rows = top.texts("rows")
    for output in outputs:
        if len(set(rows)) < len(rows) or any(output.axes.count(axis) != 1 for axis in rows):
            raise top.fail("rows", f"are {list(rows)}, each of which must be one axis of output {output.name!r}")
    return rows


def _work(table: _Table, values: Mapping[str, int]) -> DeclaredWork:
    keys = ("vector_flops", "matmul_flops", "hbm_bytes")
    table.only((*keys, "counted"))
    vector, matmul, moved = counts = [table.expression(key, table.data.get(key, 0), values) for key in keys]
    if min(counts) < 0 or moved == 0:
        raise table.fail(
            "hbm_bytes", f"is {moved}; it must be greater than 0, and vector_flops and matmul_flops at least 0"
        )
    return DeclaredWork(vector, matmul, moved, counted=table.flag("counted"))


def _distributions(table: _Table) -> dict[str, DistributionState]:
    table.only(DISTRIBUTIONS)
    states: dict[str, DistributionState] = {}
    for name in DISTRIBUTIONS:
        given = table.data.get(name, "declared" if name == "own" else None)
        if given == "declared":
            states[name] = DistributionState(True)
        elif isinstance(given, dict) and set(given) == {"refused"} and isinstance(given["refused"], str):
            states[name] = DistributionState(False, given["refused"])
        elif given is None:
            raise table.fail(name, "is missing", f'Say {name} = "declared" or {name} = {{ refused = "reason" }}.')
        else:
            raise table.fail(name, f'must be "declared" or {{ refused = "reason" }}, not {given!r}')
    return states


def _baselines(table: _Table, folder: Path) -> dict[str, Path]:
    table.only(BASELINE_FILES)
    return {api: _file(table, api, folder) for api in table.data}


def _variants(table: _Table, folder: Path) -> tuple[Variant, ...]:
    variants = []
    for name in table.data:
        one = table.table(name)
        one.only(("api", "file", "description"))
        variants.append(
            Variant(name, one.choice("api", BASELINE_FILES), _file(one, "file", folder), one.text("description"))
        )
    return tuple(variants)


def _array(top: _Table, key: str) -> list[_Table]:
    items = top.data.get(key, [])
    if not isinstance(items, list):
        raise top.fail(key, f"must be an array of tables, [[{key}]]")
    return [_Table(top.path, f"[[{key}]] {number + 1}", item) for number, item in enumerate(items)]


def _anchors(top: _Table) -> tuple[Anchor, ...]:
    anchors = []
    for one in _array(top, "anchors"):
        one.only(("what", "latency_us", "chip", "sdk", "citation", "api"))
        latency = one.number("latency_us", 0.0)
        if latency <= 0:
            raise one.fail("latency_us", "must be positive")
        anchors.append(
            Anchor(
                one.text("what"),
                latency,
                one.text("chip"),
                one.text("sdk", ""),
                one.text("citation"),
                one.text("api", ""),
            )
        )
    return tuple(anchors)


def _hidden(top: _Table, values: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    found = []
    for one in _array(top, "hidden"):
        one.only(values)
        shape = _values(one)
        if all(values[symbol] == extent for symbol, extent in shape.items()):
            raise one.fail("shape", "is the workload's own shape", "Give at least one symbol another size.")
        if min(shape.values()) < 1:
            raise one.fail("shape", f"is {shape_text(shape)}; every size must be positive")
        found.append(shape)
    return tuple(found)


def _shapes(top: _Table, values: Mapping[str, int]) -> tuple[WeightedShape, ...]:
    found = []
    for one in _array(top, "shapes"):
        one.only(("values", "weight"))
        table = one.table("values")
        table.only(values)
        shape = _values(table)
        if all(values[symbol] == extent for symbol, extent in shape.items()):
            raise one.fail(
                "values", "are those of the workload's own shape", "`weight` at the top is the weight of that shape."
            )
        found.append(WeightedShape(shape, _weight(one)))
    if "weight" in top.data and not found:
        raise top.fail(
            "weight",
            "weighs the workload's own shape against [[shapes]], but the file has no [[shapes]]",
            "Take out the line, or list another shape.",
        )
    return tuple(found)


def _weight(table: _Table) -> float:
    weight = table.number("weight", 1.0)
    if not 0 < weight <= _MOST_WEIGHT:
        raise table.fail("weight", f"is {weight:g}; it must be positive, and at most {_MOST_WEIGHT:g}")
    return weight


def _definition(table: _Table, values: Mapping[str, int]) -> Definition:
    table.only(("definition", "op_type", "axes", "free", "shapes"))
    given = table.table("axes")
    axes = {axis: given.expression(axis, extent, values) for axis, extent in given.data.items()}
    free = table.texts("free")
    listed = table.table("shapes")
    shapes = {name: listed.texts(name) for name in listed.data}
    for where, named in (("free", free), *((f"shapes.{name}", shape) for name, shape in shapes.items())):
        for axis in named:
            if axis not in axes:
                raise table.fail(where, f"names {axis!r}, which is not an axis.", nearest_of(axis, axes))
    return Definition(table.text("definition"), table.text("op_type"), axes, frozenset(free), shapes)


def _metamorphic(top: _Table, names: list[str]) -> tuple[Metamorphic, ...]:
    checks = []
    for one in _array(top, "metamorphic"):
        one.only(("kind", "arguments", "axis", "output_axis", "power"))
        arguments = one.texts("arguments")
        for name in arguments:
            if name not in names:
                raise one.fail("arguments", f"names {name!r}, which is not an argument.", nearest_of(name, names))
        kind = one.choice("kind", METAMORPHIC_KINDS)
        checks.append(
            Metamorphic(kind, arguments, one.whole("axis", 0), one.whole("output_axis", 0), one.whole("power", 1))
        )
    return tuple(checks)
