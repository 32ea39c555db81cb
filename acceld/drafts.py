"""Draft workload folders from a kernel, argument shapes, a reference, or sample inputs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld.child import Child, child
from acceld.chips import CURRENT_API
from acceld.errors import UsageError, WorkloadError, nearest_of, no_file
from acceld.kernel_files import syntax_error
from acceld.workloads.records import BASELINE_FILES, DISTRIBUTIONS, DTYPE_BYTES, Precision

if TYPE_CHECKING:
    from acceld.lowering.kernels import Pieces
    from acceld.model import Kernel

REFERENCE_DEADLINE_S = 300.0
"""Most processor seconds that a child process may take to run or to lower a reference. The time of day does not count,
because other processes may use this machine's cores.
"""
IDLE_S = 60.0
"""Seconds without any processor time after which a child process counts as one that waits for ever."""
LOOK_S = 0.5
"""Seconds between two looks at a child process."""
_COMMENTS_AT = 35
"""Column of the comments in a drafted workload.toml."""
_MOST_MULTIPLE = 100
"""Multiple of an array's size from which on an amount of work is written as a number."""
UNFIT = ("nki", "nisa", "nl", "range", "len", "slice", "min", "max")
"""Names that mean something else in a lowered kernel. If a parameter of ``forward`` has such a name, the kernel's
argument gets another name.
"""
_ARGUMENT = re.compile(r"^(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:x\d+)*):(?P<dtype>\w+)$")


@dataclass(frozen=True, slots=True)
class DraftArgument:
    """An argument of a drafted workload: an array with shape and dtype, or a scalar with a value."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    value: float | int | None = None
    kernel_shape: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """The values that the reference's ``get_inputs`` gives if they are at most two, as for a mask."""

    range: tuple[int, int] | None = None
    """Least and greatest number that ``get_inputs`` gives, for an array of whole numbers with more than two values."""

    absolute: bool = False
    """True for values that are never negative, such as variances."""

    @property
    def is_mask(self) -> bool:
        """Tell whether an array is a mask, whose values mean yes or no. The distributions of a workload leave masks
        unchanged.
        """
        return bool(self.values) or self.dtype in ("bool", "uint8") or "mask" in self.name.lower()


@dataclass(frozen=True, slots=True)
class DraftOutput:
    """An output of a drafted workload: its shape in the reference, and its shape in the kernel where that
    differs.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kernel_shape: tuple[int, ...] = ()


TOLERANCE = 2e-5
"""Greatest relative L2 error of an output of float32, unless its reference is less exact: the paper's."""


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """Arguments and outputs of a reference, as one call of it showed them."""

    arguments: tuple[DraftArgument, ...]
    outputs: tuple[DraftOutput, ...]
    drawn: bool = False
    """True if the reference has no ``get_inputs``, so that its arrays were drawn at random with the given shapes."""

    narrow: tuple[str, ...] = ()
    """Outputs that the reference computes in float32 or less although it is given float64: they contain its rounding
    errors.
    """
    unread: tuple[str, ...] = ()
    """Arguments that the code of ``forward`` never reads."""

    surprises: tuple[str, ...] = ()
    """Things that acceld does with the reference and its author may not expect, each as a sentence for people."""

    noise: float = 0.0
    """Greatest relative L2 error of an output in float32 against float64; 0 if the reference does not compute in both."""


def tolerance_of(noise: float) -> float:
    """Return the tolerance of outputs of float32 whose reference has the error ``noise``."""
    return TOLERANCE if noise <= TOLERANCE / 2 else float(f"{min(3 * noise, 0.9):.1g}")


def parse_argument(text: str, place: int, *, of_module: bool = False) -> DraftArgument:
    """Return the array argument that a text such as ``x=128x512:bfloat16`` or ``128x512:float32`` describes.

    ``place`` is the argument's position, from which an argument without a name gets a name. An argument of a PyTorch
    module (``of_module``) may have the dtype int64, which PyTorch asks for where numbers of classes or places are
    expected; its kernel takes int32. Raise UsageError for a text of another form.
    """
    match = _ARGUMENT.match(text)
    if match is None:
        raise UsageError(f"argument {text!r} is not NAME=SHAPE:DTYPE", hint="for example x=4096x8192:bfloat16")
    dtype = match["dtype"]
    if dtype not in DTYPE_BYTES and not (of_module and dtype == "int64"):
        wide = _on_chip(dtype)
        if wide != dtype:
            raise UsageError(f"argument {text!r}: a kernel has no {dtype}", hint=f"use {wide}; no engine has 64 bits")
        raise UsageError(f"argument {text!r}: dtype {dtype!r} is unknown", hint=nearest_of(dtype, DTYPE_BYTES))
    shape = tuple(map(int, match["shape"].split("x")))
    if 0 in shape:
        raise UsageError(f"argument {text!r} has no elements", hint="every dimension is at least 1")
    return DraftArgument(match["name"] or f"arg{place}", shape, dtype)


def parse_scalar(text: str) -> DraftArgument:
    """Return the scalar argument that a text such as ``eps=1e-6`` describes. Raise UsageError for another
    form.
    """
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError as error:
        raise UsageError(f"scalar {text!r} is not NAME=NUMBER", hint="for example eps=1e-6") from error
    return DraftArgument(name, value=int(number) if re.fullmatch(r"-?\d+", value) else number)


def reference_facts(path: Path, given: Sequence[DraftArgument] = ()) -> ReferenceFacts:
    """Call a reference (a person's own file) once in a child process, and return its arguments and outputs.

    ``given`` has the names of the first arguments, and their shapes if the file has no ``get_inputs``. If ``get_inputs``
    returns the arrays alone, the numbers are those of ``given``. Further arguments are named as the parameters of
    ``forward``. Raise WorkloadError if the file has no ``forward`` or raises an exception.
    """
    reported = json.dumps([{"shape": a.shape, "dtype": a.dtype, "value": a.value} for a in given])
    called = ", ".join(f"{a.name}={'x'.join(map(str, a.shape))}:{a.dtype}" for a in given if a.value is None)
    draws = path.is_file() and re.search(
        r"^def get_inputs\b", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
    )
    hint = (
        "Mend the reference: its forward is called with what its get_inputs() returns."
        if draws
        else f"The reference was called with {called}: change --arg, or mend the reference."
        if called
        else "Describe each argument of forward: --arg NAME=128x512:float32 for an array, --scalar NAME=1e-6 for a number."
    )
    if path.is_file() and (wrong := syntax_error(path.read_text(encoding="utf-8-sig", errors="replace"), path)):
        raise WorkloadError(wrong.message, hint=wrong.hint)
    start = child("acceld.workloads.probe", str(path.resolve()), reported, str(path))
    raw = _answered(path, start, doing="running it once", hint=hint)
    if refused := raw.get("refused"):
        where = f"{path}:{refused['line']}" if refused["line"] else str(path)
        raise WorkloadError(f"{where}: {refused['fault']}", hint=refused["remedy"] or hint)
    names = [argument.name for argument in given]
    names += [
        name if name.isascii() and name not in (*UNFIT, *names) else f"arg{place}"
        for place, name in enumerate(raw["names"])
        if place >= len(given)
    ]
    arguments = []
    for place, (drawn, kernel) in enumerate(zip(raw["inputs"], raw["kernel"], strict=True)):
        name = names[place] if place < len(names) else f"arg{place}"
        if "value" in drawn:
            arguments.append(DraftArgument(name, value=drawn["value"]))
        else:
            shape, kernel_shape = tuple(drawn["shape"]), tuple(kernel["shape"])
            dtype = _on_chip(drawn["dtype"])
            if place < len(given):
                _refuse_other(path, given[place], {shape, kernel_shape}, dtype)
            absolute = place < len(given) and given[place].absolute
            values = () if raw["drawn"] else tuple(drawn.get("values", ()))
            span = None if raw["drawn"] or "range" not in drawn else (drawn["range"][0], drawn["range"][1])
            arguments.append(DraftArgument(name, shape, dtype, None, kernel_shape, values, span, absolute))
    outputs = [DraftOutput(f"out{i}", tuple(o["shape"]), _on_chip(o["dtype"])) for i, o in enumerate(raw["outputs"])]
    for output, found in zip(outputs, raw["outputs"], strict=True):
        if output.dtype not in DTYPE_BYTES:
            what = f"of type {found['type']}" if found["dtype"] == "object" else f"an array of {found['dtype']}"
            raise WorkloadError(
                f"{path}: the output {output.name} of forward is {what}, which no kernel can return",
                hint="Return an array of numbers, or a tuple of such arrays.",
            )
    unread = tuple(one.name for one, name in zip(arguments, raw["names"], strict=False) if name in raw["unread"])
    return ReferenceFacts(
        tuple(arguments),
        tuple(outputs),
        raw["drawn"],
        tuple(outputs[place].name for place in raw["narrow"]),
        unread,
        tuple(_surprises(raw, arguments, unread)),
        raw["noise"],
    )


def _surprises(raw: Mapping[str, Any], arguments: Sequence[DraftArgument], unread: Sequence[str]) -> Iterator[str]:
    """Yield a note on each way in which acceld treats the reference that its author may not expect.

    ``raw`` is the answer of the process that called the reference.
    """
    for name in unread:
        yield f"forward does not use {name}, so a kernel may ignore it; leave {name} out, or use it"
    for argument, drawn in zip(arguments, raw["inputs"], strict=True):
        if argument.value is None and drawn["dtype"] != argument.dtype and not raw["drawn"]:
            yield f"get_inputs makes {argument.name} in {drawn['dtype']}, and kernels get it in {argument.dtype}"
    if raw["draws"] == "alike":
        yield (
            "get_inputs gives the same arrays in every call, so that a kernel may be right for these alone; draw from np.random, "
            "and leave out the seed, which acceld sets"
        )
    if raw["draws"] == "unseeded":
        yield (
            "get_inputs draws from a generator that acceld can not seed, so that no result can be repeated; draw from np.random, as "
            "np.random.standard_normal does"
        )
    if raw["noise"] > TOLERANCE / 2:
        yield (
            f"forward in float32 differs from forward in float64 by {raw['noise']:.2g} (relative L2), so tolerance = "
            f"{tolerance_of(raw['noise']):g} was written, and a kernel with such an error passes; mend what loses the digits, such "
            "as -1e9 added to a score, a row that is masked as a whole, or a difference of large numbers"
        )
    if raw["printed"]:
        yield f"what the reference prints is not shown: {raw['printed']}"


def _refuse_other(path: Path, said: DraftArgument, shapes: Collection[tuple[int, ...]], dtype: str) -> None:
    """Raise UsageError if the shape or the dtype that a person gave for an argument (``said``) differs from the array
    with which the reference was called.
    """
    if said.value is None and said.dtype and (said.shape not in shapes or _on_chip(said.dtype) != dtype):
        made = " or ".join(f"{'x'.join(map(str, shape))}:{dtype}" for shape in sorted(shapes))
        raise UsageError(
            f"{path}: get_inputs makes {said.name} as {made}, and --arg says {'x'.join(map(str, said.shape))}:{said.dtype}",
            hint="change get_inputs, or leave out --arg",
        )


def _answered(path: Path, start: Child, *, doing: str, request: str = "", hint: str = "") -> Any:
    """Run a child process that calls a reference, and return the last line that it prints, as JSON.

    Raise WorkloadError if the file does not exist, or if the child failed or took too long.
    """
    if not path.is_file():
        raise no_file(path, hint="Give the reference: a Python file with forward(...).")
    with subprocess.Popen(
        start.command,
        env=start.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            found, told = _finished(process, request, f"{path}: {doing}")
        except BaseException:  # an interruption too: the process must not outlive the command
            process.kill()
            raise
    if process.returncode:
        lines = told.strip().splitlines()
        own = re.findall(rf'File "{re.escape(str(path.resolve()))}", line (\d+)', told)
        where = f"{path}:{own[-1]}" if own else str(path)
        why = lines[-1] if lines else "it ended without a message"
        raise WorkloadError(f"{where}: {doing} failed: {why}", hint=hint)
    return json.loads(found.splitlines()[-1])


def _finished(process: subprocess.Popen[str], request: str, doing: str) -> tuple[str, str]:
    """Return what a child process writes to its standard output and to its standard error. ``request`` is its standard
    input.

    Raise WorkloadError, whose message begins with ``doing``, if the process uses too much processor time, or none for too
    long.
    """
    used, changed = 0.0, time.monotonic()
    given: str | None = request
    while True:
        try:
            return process.communicate(given, timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            given = None  # the first call goes on writing the request
        before, used = used, time.clock_gettime(~process.pid << 3 | 2)  # Linux's number of the clock of a process
        if used > before:
            changed = time.monotonic()
        if used > REFERENCE_DEADLINE_S:
            raise WorkloadError(
                f"{doing} takes more than {REFERENCE_DEADLINE_S:.0f} s of processor time",
                hint="use smaller shapes, or numpy functions in place of Python loops",
            )
        if time.monotonic() - changed > IDLE_S:
            raise WorkloadError(
                f"{doing} has used no processor time for {IDLE_S:.0f} s",
                hint="let the reference wait for nothing, and read no input",
            )


def _on_chip(dtype: str) -> str:
    """Return the dtype that kernels use for a numpy dtype: 32 bits in place of 64, because no engine has 64 bits."""
    return {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(dtype, dtype)


@dataclass(frozen=True, slots=True)
class Lowered:
    """Kernels that were lowered from one reference, by API, and the reason for each API without a kernel. ``work``
    has the operations and bytes that the reference needs at least.
    """

    kernels: Mapping[str, str]
    refused: Mapping[str, str]
    work: Mapping[str, int]
    plainer: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further kernels that compute in smaller pieces, by API; empty if none were requested."""


def lowered_kernels(
    path: Path, facts: ReferenceFacts, *others: ReferenceFacts, plainer: Sequence[Pieces] = ()
) -> Lowered:
    """Lower a reference to a kernel for each API, in a child process. For an API without a kernel the result
    has the reason.

    ``others`` are the same arguments in other shapes, which each kernel has to support too. For each entry of
    ``plainer`` one more kernel is made, which computes in pieces of at most that size.

    Raise WorkloadError if the reference can not be called.
    """
    shapes = [
        {
            "arguments": [
                {"name": a.name, "shape": a.shape, "dtype": a.dtype, "value": a.value, "kernel_shape": a.kernel_shape}
                for a in one.arguments
            ],
            "output_shapes": [output.kernel_shape or output.shape for output in one.outputs],
        }
        for one in (facts, *others)
    ]
    start = child("acceld.lowering.child", str(path.resolve()))
    raw = _answered(
        path,
        start,
        doing="lowering it",
        request=json.dumps({"shapes": shapes, "plainer": [asdict(one) for one in plainer]}),
    )
    further = {api: tuple(texts) for api, texts in raw["plainer"].items()}
    return Lowered(raw["kernels"], raw["refused"], raw.get("work", {}), further)


def write_reference_folder(
    path: Path,
    facts: ReferenceFacts,
    given: Sequence[DraftArgument],
    folder: Path,
    *,
    name: str,
    precision: Precision = Precision.ANY_WITHIN_TOLERANCE,
    plainer: Sequence[Pieces] = (),
) -> Lowered:
    """Write the workload of a reference to a new folder, completely or not at all, and return the kernels
    lowered from it.

    ``facts`` are those of the reference in ``path``, called with the arguments ``given``. For each entry of
    ``plainer`` the result has one more kernel, which computes in pieces of at most that size.

    Raise UsageError if the folder can not be written, WorkloadError if the reference does not take these arguments.
    """
    if given and [a.name for a in given] != [a.name for a in facts.arguments]:
        raise WorkloadError(
            f"{path}: forward takes {len(facts.arguments)} arguments, and {len(given)} are described",
            hint="describe each one in order: --arg NAME=SHAPE:DTYPE for an array, --scalar NAME=NUMBER for a number",
        )
    lowered = lowered_kernels(path, facts, plainer=plainer)
    toml = workload_toml(
        name,
        facts.arguments,
        facts.outputs,
        baselines={api: BASELINE_FILES[api] for api in sorted(lowered.kernels, key=lambda api: api != CURRENT_API)},
        reference="reference.py",
        entry="kernel",
        drawn=facts.drawn,
        work=lowered.work or compulsory_work(facts),
        precision=precision,
        unread=facts.unread,
        noise=facts.noise,
    )
    files = {BASELINE_FILES[api]: kernel for api, kernel in lowered.kernels.items()}
    fresh = folder.with_name(f".{folder.name}.acceld")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        shutil.copyfile(path, fresh / "reference.py")
        for file, content in {**files, "workload.toml": toml}.items():
            (fresh / file).write_text(content, encoding="utf-8")
        fresh.rename(folder)
    except OSError as error:
        raise UsageError(
            f"can not write {folder}: {error.strerror}", hint="choose another folder by -o, or make this one writable"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return lowered


def compulsory_work(facts: ReferenceFacts) -> Mapping[str, int]:
    """Return the declared work of a reference that can not be traced, so that its operations are unknown: the bytes
    of its arrays.

    If an argument has integers, as a page table does, they may select which parts of other arrays are read. Then only
    the bytes of the integers and of the outputs count.
    """
    arrays = [(a.shape, a.dtype) for a in facts.arguments if a.value is None]
    arrays = [one for one in arrays if "int" in one[1]] or arrays
    arrays += [(o.shape, o.dtype) for o in facts.outputs]
    moved = sum(prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in arrays)
    return {"matmul_flops": 0, "vector_flops": 0, "hbm_bytes": moved}


def workload_toml(
    name: str,
    arguments: Sequence[DraftArgument],
    outputs: Sequence[DraftOutput],
    *,
    baselines: Mapping[str, str],
    reference: str | None,
    entry: str = "",
    grid: tuple[int, ...] = (),
    lnc: int = 1,
    mutates: Sequence[str] = (),
    sample: str = "",
    drawn: bool = False,
    work: Mapping[str, int] | None = None,
    precision: Precision = Precision.ANY_WITHIN_TOLERANCE,
    unread: Collection[str] = (),
    noise: float = 0.0,
) -> str:
    """Return the text of a workload.toml with comments for its author.

    ``drawn`` says that the reference has no ``get_inputs``: its arrays are then drawn at random. ``work`` is
    the operator's work, None if it is unknown. ``sample`` names the file with sample inputs, if there is one. ``unread``
    has the arguments that the reference does not use, and ``noise`` is the reference's own error.
    """
    wide = ("", "float32", "int32", "uint32", "bool")
    dtypes = {*(one.dtype for one in arguments), *(one.dtype for one in outputs)}
    tolerance = tolerance_of(noise) if dtypes.issubset(wide) else 2e-2
    lines = [
        f'name = "{name}"',
        _noted('description = ""', "one line for lists"),
        _noted(f'precision = "{precision}"', " | ".join(Precision)),
        _noted(
            f"tolerance = {tolerance:g}", "upper limit of an output's relative L2 error; a smaller one may be derived"
        ),
        _noted("tags = []", "such as matmul, softmax: insights are matched by them"),
    ]
    if reference is None:
        lines.append(_noted("reference = false", "the kernel's own execution in float64 replaces it"))
    elif reference != "reference.py":
        lines.append(f'reference = "{reference}"')
    if sample:
        lines.append(_noted(f'sample = "{sample}"', "arrays by argument name, instead of drawn ones"))
    for argument in arguments:
        lines += ["", f"[arguments.{argument.name}]"]
        if argument.value is not None:
            lines.append(f"value = {argument.value!r}")
            continue
        lines += [f"shape = {list(argument.shape)}", f'dtype = "{argument.dtype}"']
        if argument.kernel_shape and argument.kernel_shape != argument.shape:
            text = f"kernel_shape = {list(argument.kernel_shape)}"
            lines.append(_noted(text, "the same elements in the same order"))
        lines += _distribution_lines(argument, drawn=drawn or reference is None, unread=argument.name in unread)
    for output in outputs:
        lines += ["", f"[outputs.{output.name}]", f"shape = {list(output.shape)}", f'dtype = "{output.dtype}"']
        if output.kernel_shape and output.kernel_shape != output.shape:
            lines.append(f"kernel_shape = {list(output.kernel_shape)}")
    lines += ["", _noted("[distributions]", "inputs besides its own that candidates are checked on")]
    lines += [f'{name} = "declared"' for name in DISTRIBUTIONS if name not in ("own", "special")]
    lines.append('# leave the next line, unless kernels must be right on such values too: then write "declared"')
    lines.append('special = { refused = "the reference has not been tried on special values" }')
    if work:
        lines += [
            "",
            _noted("[work]", "what the reference computes and moves"),
            _noted("counted = true", "another algorithm may compute less; false if none can"),
        ]
        arrays = [(one.shape, one.dtype) for one in arguments if one.value is None]
        arrays += [(one.shape, one.dtype) for one in outputs]
        lines += [
            f'{name} = "{_moved(amount, arrays) if name == "hbm_bytes" else _product(amount, [one for one, _ in arrays])}"'
            for name, amount in work.items()
        ]
    else:
        lines += [
            "",
            _noted("# [work]", "of the operator itself; percent of peak needs it"),
            '# vector_flops = "0"',
            '# matmul_flops = "2*M*N*K"',
            '# hbm_bytes = "4*(M*K + K*N + M*N)"',
        ]
    lines += [
        "",
        "[baselines]",
        *(f'{api} = "{file}"' for api, file in baselines.items()),
    ]
    if drawn and reference is not None:
        lines += _other_shapes(arguments)
    if entry or grid or lnc != 1 or mutates:
        lines += ["", "[kernel]"]
        lines += [f'entry = "{entry}"'] if entry else []
        lines += [f"grid = {list(grid)}"] if grid else []
        lines += [f"lnc = {lnc}"] if lnc != 1 else []
        lines += [f"mutates = {json.dumps(list(mutates))}"] if mutates else []
    return "\n".join(lines) + "\n"


def _noted(text: str, note: str) -> str:
    """Return a line of a workload.toml with the comment ``note`` behind it. All comments begin in the same column."""
    return f"{text:<{_COMMENTS_AT}}# {note}"


def _distribution_lines(argument: DraftArgument, *, drawn: bool, unread: bool) -> list[str]:
    """Return the lines of a workload.toml that say how an array is drawn where ``get_inputs`` is not called.

    The lines hold at the workload's other shapes. If the reference has no ``get_inputs`` (``drawn``), they hold at
    every shape.
    """
    what, how = "", ""
    if argument.is_mask:
        what = "a mask: its values stay as they are in every distribution"
    elif unread:
        what = "forward does not use it, so that no distribution changes it"
    fixed = ", fixed = true" if what else ""
    if argument.values:
        how = f'kind = "values", values = [{", ".join(map(_number, argument.values))}]'
    elif argument.range:
        how = f'kind = "integers", low = {argument.range[0]}, high = {argument.range[1] + 1}'
    elif argument.is_mask and drawn:
        how = 'kind = "integers", low = 0, high = 2'
    elif argument.absolute:
        how = 'kind = "normal", std = 1.0, absolute = true'
    elif drawn or what:
        how = 'kind = "normal", std = 1.0'
    return ([f"# {what}"] if what else []) + ([f"distribution = {{ {how}{fixed} }}"] if how else [])


def _number(value: float) -> str:
    """Return a number as TOML writes it, as short as it can be."""
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    short = re.sub(r"e([+-])0*(\d+)$", lambda found: f"e{found[1].strip('+')}{found[2]}", f"{value:.6g}")
    return short if float(short) == value else repr(value)


def _product(amount: int, shapes: Sequence[tuple[int, ...]]) -> str:
    """Return an amount of work as a multiple of the extents of an array, such as ``7*2048*1024``, so that a person
    sees where to put a symbol.

    Extents of two arrays are combined if the arrays share an extent. An amount that is no small multiple of extents
    stays a number.
    """
    found = [_units(one, other) for one in shapes for other in shapes]
    fits = [(amount // prod(one), one) for one in found if one and amount and amount % prod(one) == 0]
    multiple, extents = min(fits, key=lambda one: (one[0], len(one[1])), default=(_MOST_MULTIPLE, ()))
    factors = extents if multiple == 1 else (multiple, *extents)
    return "*".join(map(str, factors)) if multiple < _MOST_MULTIPLE else str(amount)


def _moved(amount: int, arrays: Sequence[tuple[tuple[int, ...], str]]) -> str:
    """Return a number of bytes as the sum of the arrays' bytes, such as ``8*2048*1024 + 4*1024``. A number that is no
    such sum is returned as it is.
    """
    sizes: Counter[tuple[int, ...]] = Counter()
    for shape, dtype in arrays:
        sizes[shape] += DTYPE_BYTES[dtype]
    if sum(each * prod(shape) for shape, each in sizes.items()) != amount:
        return str(amount)
    return " + ".join("*".join(map(str, (each, *shape))) for shape, each in sizes.items())


def _units(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of two arrays together. An extent that both arrays have is listed once."""
    rest = list(one)
    for extent in other:
        if extent in rest:
            rest.remove(extent)
    return (*other, *rest)


def write_kernel(kernel: Kernel, folder: Path) -> dict[str, str]:
    """Write a kernel and the modules that it imports into a workload's folder, and return the folder's baselines.

    A kernel with such modules keeps its file name and place, because relative imports between them depend on file name
    and place.
    """
    baseline = kernel.filename if kernel.closure else BASELINE_FILES[kernel.api]
    for name, text in {**kernel.closure, baseline: kernel.text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return {kernel.api: baseline}


def _other_shapes(arguments: Sequence[DraftArgument]) -> list[str]:
    """Return lines, as comments, that propose a second shape on which a kernel must be right too."""
    extents = [extent for argument in arguments for extent in argument.shape[:1]]
    if not extents:
        return []
    rows = extents[0]
    other = rows // 2 if rows % 256 == 0 else rows + 128
    return [
        "",
        '# For one kernel at several shapes: write "M" for this extent in each shape above, take out [baselines], and keep one',
        "# of the last two tables. acceld lowers the reference for both shapes then.",
        "# [values]",
        f"# M = {rows}",
        _noted("# [[shapes]]", "a kernel is checked and timed at this shape too"),
        f"# values = {{ M = {other} }}",
        _noted("# [[hidden]]", "a kernel is checked at this shape, and not timed"),
        f"# M = {other}",
    ]
