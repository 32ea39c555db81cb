"""Draw programs: numpy references of parts of language models, with random steps and shapes. This module is pure.

A program depends on its seed and its number alone. ``forward`` contains no size; sizes are in ``get_inputs``. So the
formula has the same text at every size, and the hash of the formula decides whether a program is training or test data.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """The ranges of extents from which programs of one size class are drawn."""

    share: float
    """Share (0 to 1) of all programs that belong to this size class."""
    rows: Sequence[int]
    columns: Sequence[int]
    inner: Sequence[int]
    """Columns of a matrix product's result, where a step of the program chooses them."""
    heads: Sequence[int]
    keys: Sequence[int]
    head: Sequence[int]
    """Width of an attention head."""
    steps: Sequence[int]
    """Time steps of recurrences, which numpy computes one by one."""


SIZES: Mapping[str, Size] = {
    "small": Size(
        share=0.94,
        rows=(16, 33, 64, 96, 128, 128, 160, 200, 256, 256, 300, 384),
        columns=(48, 64, 80, 96, 128, 128, 192, 200, 256, 256, 320, 384, 512, 768),
        inner=(32, 64, 96, 128, 192, 256, 320, 384, 512),
        heads=(1, 2, 4),
        keys=(48, 64, 96, 128, 128, 192, 256),
        head=(16, 32, 64, 64, 128),
        steps=(8, 16, 32),
    ),
    "medium": Size(
        share=0.05,
        rows=(256, 512, 640, 1024),
        columns=(512, 768, 1024, 1536),
        inner=(256, 512, 1024),
        heads=(4, 8),
        keys=(256, 384, 512),
        head=(64, 128),
        steps=(32, 64),
    ),
    "real": Size(
        share=0.01,
        rows=(512, 1024, 2048),
        columns=(2048, 4096),
        inner=(1024, 2048),
        heads=(8, 16),
        keys=(1024, 2048),
        head=(128,),
        steps=(64, 128),
    ),
}
"""The size classes. A small program is checked on data in a second. A real program has the sizes of one core's share of
a model of 1 to 8 billion parameters.
"""
NARROW_SHARE = 0.15
"""Share (0 to 1) of the programs whose arrays are bfloat16; these programs compute in float32."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn program: its family, its number, and the text of its reference in parts."""

    number: int
    family: str
    size: str
    formula: str
    """Text of imports, helpers and ``forward``, without sizes."""
    inputs: str
    """Text of ``get_inputs``."""

    @property
    def text(self) -> str:
        """Return the whole text of the reference."""
        return f"{self.formula}\n\n{self.inputs}"

    @property
    def name(self) -> str:
        """Return the program's name: its family and number."""
        return f"{self.family}_{self.number:06d}"

    @property
    def formula_sha256(self) -> str:
        """Return the hash of the formula. Programs with equal hashes go to the same split."""
        return hashlib.sha256(self.formula.encode()).hexdigest()


HELPERS = {
    "softmax": """\
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)""",
    "silu": """\
def silu(x):
    return x / (1 + np.exp(-x))""",
    "gelu": """\
def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))""",
    "rms_norm": """\
def rms_norm(x, g):
    return x * g / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-5)""",
    "layer_norm": """\
def layer_norm(x):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + 1e-5)""",
    "rotate": """\
def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)""",
    "causal": """\
def causal(scores):
    query, key = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])[None, :]
    return np.where(key <= query + scores.shape[-1] - scores.shape[-2], scores, -1e9)""",
}
ACTIVATIONS = {
    "SiLU": "silu({0})",
    "GELU": "gelu({0})",
    "ReLU": "np.maximum({0}, 0)",
    "a squared ReLU": "np.maximum({0}, 0) ** 2",
    "a leaky ReLU": "np.where({0} > 0, {0}, 0.1 * {0})",
    "tanh": "np.tanh({0})",
    "a sigmoid": "1 / (1 + np.exp(-{0}))",
    "softplus": "np.maximum({0}, 0) + np.log(1 + np.exp(-abs({0})))",
    "a hard swish": "{0} * np.clip({0} / 6 + 0.5, 0, 1)",
    "a soft cap": "30 * np.tanh({0} / 30)",
    "clipping": "np.clip({0}, -1, 1)",
}


class _Text:
    """A reference that is being written: the lines of ``forward`` so far, its arguments, and the name of the current
    value. The next step of the reference reads the current value.
    """

    def __init__(self, rng: random.Random, size: Size) -> None:
        self.rng, self.size = rng, size
        self.lines: list[str] = []
        self.arguments: list[tuple[str, Shape, float]] = []
        """Names, shapes and scales of the arguments."""
        self.words: list[str] = []
        self.value, self.shape = "", ()  # type: str, Shape
        self.kept: list[tuple[str, Shape]] = []
        """Names and shapes of earlier values that later steps can read."""
        self._count = 0

    def argument(self, name: str, *shape: int, scale: float = 1.0) -> str:
        """Add an argument, and return its name."""
        taken = sum(one.rstrip("0123456789") == name for one, _, _ in self.arguments)
        name = f"{name}{taken + 1}" if taken else name
        self.arguments.append((name, shape, scale))
        return name

    def start(self, name: str, *shape: int) -> None:
        """Add an argument, and make it the current value."""
        self.value, self.shape = self.argument(name, *shape), shape

    def let(self, expression: str, *shape: int) -> None:
        """Bind an expression to a new name, and make it the current value. Without ``shape`` the new value has the
        shape of the current value.
        """
        self.kept.append((self.value, self.shape))
        self._count += 1
        self.value = f"h{self._count}"
        self.lines.append(f"{self.value} = {expression}")
        self.shape = shape or self.shape

    def helper(self, text: str) -> str:
        """Bind an expression to a new name, and return the name. The current value stays."""
        self._count += 1
        self.lines.append(f"h{self._count} = {text}")
        return f"h{self._count}"

    def say(self, words: str) -> None:
        """Add words to the docstring of the written ``forward``."""
        self.words.append(words)

    def pick(self, extents: Sequence[int]) -> int:
        """Return one of ``extents``, drawn at random."""
        return self.rng.choice(extents)

    def chance(self, share: float) -> bool:
        """Return True at random, in the given share (0 to 1) of all draws."""
        return self.rng.random() < share


# Steps on rows: each reads the current value and binds the next value.


def _normed(text: _Text) -> None:
    columns, kind = text.shape[-1], text.rng.randrange(4)
    if kind == 0:
        text.let(f"rms_norm({text.value}, {text.argument('g', columns)})")
        text.say("an RMS norm")
    elif kind == 1:
        text.let(f"layer_norm({text.value}) * {text.argument('g', columns)} + {text.argument('b', columns)}")
        text.say("a layer norm")
    elif kind == 2:
        text.let(f"{text.value} / np.sqrt((np.square({text.value})).sum(axis=-1, keepdims=True) + 1e-6)")
        text.say("an L2 norm")
    else:
        text.let(f"rms_norm({text.value}, 1 + {text.argument('g', columns)})")
        text.say("an RMS norm with gain 1 + g")


def _activated(text: _Text) -> None:
    name = text.rng.choice(list(ACTIVATIONS))
    text.let(ACTIVATIONS[name].format(text.value))
    text.say(name)


def _affine(text: _Text) -> None:
    columns, kind = text.shape[-1], text.rng.randrange(3)
    if kind == 0:
        text.let(f"{text.value} * {text.argument('s', columns)} + {text.argument('b', columns)}")
    elif kind == 1:
        text.let(f"{text.rng.choice((0.125, 0.5, 1.5, 2.0))} * {text.value} + {text.argument('b', columns)}")
    else:
        text.let(f"{text.value} * {text.argument('s', text.shape[0])}[:, None]")
    text.say("a scale" if kind == 2 else "an affine map")


def _residual(text: _Text) -> None:
    earlier = [name for name, shape in text.kept if shape == text.shape]
    other = text.rng.choice(earlier) if earlier and text.chance(0.6) else text.argument("r", *text.shape)
    scale = text.rng.choice(("", "", "0.5 * ", "0.1 * "))
    text.let(f"{other} + {scale}{text.value}")
    text.say("a residual")


def _gated(text: _Text) -> None:
    other = text.argument("z", *text.shape)
    gate = text.rng.choice(("silu({0})", "1 / (1 + np.exp(-{0}))", "np.maximum({0}, 0)", "gelu({0})"))
    text.let(f"{text.value} * ({gate.format(other)})")
    text.say("a gate")


def _halved(text: _Text) -> None:
    rows, columns = text.shape
    if columns % 2:
        return _activated(text)
    half = columns // 2
    a, b = f"{text.value}[:, : {text.value}.shape[1] // 2]", f"{text.value}[:, {text.value}.shape[1] // 2 :]"
    gate = text.rng.choice(("silu({0})", "gelu({0})", "1 / (1 + np.exp(-{0}))"))
    text.let(f"({gate.format(a)}) * {b}", rows, half)
    text.say("a gated half")


def _rotated(text: _Text) -> None:
    rows, columns = text.shape
    if columns % 2:
        return _affine(text)
    cos, sin = text.argument("cos", rows, columns // 2), text.argument("sin", rows, columns // 2)
    text.let(f"rotate({text.value}, {cos}, {sin})")
    text.say("a rotary embedding")


def _softmaxed(text: _Text) -> None:
    if text.chance(0.5):
        text.let(f"softmax({text.value} / {text.rng.choice((0.7, 2.0, 8.0))})")
        text.say("a softmax with a temperature")
    else:
        shifted = text.helper(f"{text.value} - {text.value}.max(axis=-1, keepdims=True)")
        text.let(f"{shifted} - np.log(np.exp({shifted}).sum(axis=-1, keepdims=True))")
        text.say("a log softmax")


def _shifted(text: _Text) -> None:
    before = text.helper(f"np.pad({text.value}, ((1, 0), (0, 0)))[:-1]")
    mix = text.argument("mix", text.shape[-1])
    text.let(f"{text.value} * {mix} + {before} * (1 - {mix})")
    text.say("a token shift")


def _grouped(text: _Text) -> None:
    groups = text.rng.choice((2, 4, 8))
    if text.shape[-1] % groups:
        return _normed(text)
    split = text.helper(f"{text.value}.reshape({text.value}.shape[0], {groups}, -1)")
    text.let(f"layer_norm({split}).reshape({text.value}.shape)")
    text.say(f"a norm of {groups} groups")


def _summed_up(text: _Text) -> None:
    text.let(f"np.cumsum({text.value}, axis=1)")
    text.say("running sums")


def _scaled_to_most(text: _Text) -> None:
    text.let(f"{text.value} / np.maximum(abs({text.value}).max(axis=-1, keepdims=True), 1e-3)")
    text.say("scaling by the greatest magnitude")


ON_ROWS: Sequence[tuple[int, Callable[[_Text], None]]] = (
    (5, _normed),
    (6, _activated),
    (3, _affine),
    (4, _residual),
    (3, _gated),
    (2, _halved),
    (2, _rotated),
    (2, _softmaxed),
    (1, _shifted),
    (1, _grouped),
    (1, _summed_up),
    (1, _scaled_to_most),
)


def _steps(text: _Text, count: int) -> None:
    weights, steps = [weight for weight, _ in ON_ROWS], [step for _, step in ON_ROWS]
    for step in text.rng.choices(steps, weights, k=count):
        step(text)


REDUCTIONS = {
    "the sum": "{0}.sum(axis={1})",
    "the mean": "{0}.mean(axis={1})",
    "the greatest": "{0}.max(axis={1})",
    "the mean square": "np.square({0}).mean(axis={1})",
    "the variance": "{0}.var(axis={1})",
}


def _reduced(text: _Text) -> None:
    name, axis = text.rng.choice(list(REDUCTIONS)), text.rng.choice((0, 1, 1, 1))
    text.let(REDUCTIONS[name].format(text.value, axis), text.shape[1 - axis])
    text.say(f"{name} of each {'row' if axis else 'column'}")


# Products.


def _product(text: _Text, columns: int) -> None:
    rows, inner = text.shape
    scale = inner**-0.5
    if text.chance(0.25):
        text.let(f"{text.value} @ {text.argument('w', columns, inner, scale=scale)}.T", rows, columns)
    else:
        text.let(f"{text.value} @ {text.argument('w', inner, columns, scale=scale)}", rows, columns)
    text.say("a product")
    if text.chance(0.35):
        text.let(f"{text.value} + {text.argument('b', columns)}")
        text.say("a bias")


def _gated_product(text: _Text) -> None:
    (rows, inner), columns = text.shape, text.pick(text.size.inner)
    gate, up = (text.argument(name, inner, columns, scale=inner**-0.5) for name in ("wg", "wu"))
    activation = text.rng.choice(("silu({0})", "gelu({0})", "np.maximum({0}, 0)"))
    read = text.value
    gated = text.helper(f"{read} @ {gate}")
    text.let(f"{activation.format(gated)} * ({read} @ {up})", rows, columns)
    text.say("a gated product")
    if text.chance(0.5):
        text.let(f"{text.value} @ {text.argument('wd', columns, inner, scale=columns**-0.5)}", rows, inner)
        text.say("a product back")


def _low_rank(text: _Text) -> None:
    (rows, inner), columns, rank = text.shape, text.pick(text.size.inner), text.rng.choice((8, 16, 32))
    w = text.argument("w", inner, columns, scale=inner**-0.5)
    a, b = text.argument("a", inner, rank, scale=inner**-0.5), text.argument("b", rank, columns, scale=rank**-0.5)
    text.let(f"{text.value} @ {w} + 0.5 * ({text.value} @ {a}) @ {b}", rows, columns)
    text.say("a product with a low-rank part")


def _turned(text: _Text) -> None:
    rows, inner = text.shape
    columns = text.pick(text.size.inner)
    text.let(f"{text.value}.T @ {text.argument('y', rows, columns, scale=rows**-0.5)}", inner, columns)
    text.say("a product over the rows")


# Families.


def rows(text: _Text) -> None:
    """Write steps on the rows of one array; some programs end with a reduction."""
    text.start("x", text.pick(text.size.rows), text.pick(text.size.columns))
    _steps(text, text.rng.choice((1, 2, 2, 3, 3, 4)))
    if text.chance(0.25):
        _reduced(text)


def products(text: _Text) -> None:
    """Write one or more matrix products, with steps on rows before or after them."""
    text.start("x", text.pick(text.size.rows), text.pick(text.size.columns))
    if text.chance(0.5):
        _normed(text)
    kind = text.rng.random()
    if kind < 0.4:
        _product(text, text.pick(text.size.inner))
    elif kind < 0.7:
        _gated_product(text)
    elif kind < 0.85:
        _low_rank(text)
    else:
        _turned(text)
    _steps(text, text.rng.choice((0, 1, 1, 2)))
    if text.chance(0.3):
        _product(text, text.pick(text.size.inner))
        _steps(text, text.rng.choice((0, 1)))
    if text.chance(0.1):
        _reduced(text)


def attention(text: _Text) -> None:
    """Write the attention of one or more heads: scores, often a mask, a softmax, and often the sum of the values."""
    heads, head = text.pick(text.size.heads), text.pick(text.size.head)
    keys = text.pick(text.size.keys)
    queries = text.rng.choice((keys, keys, 1, 8, max(16, keys // 2)))
    shared = text.rng.choice((1, 1, 2)) if heads > 1 else 1
    q, k = text.argument("q", heads, queries, head), text.argument("k", heads // shared, keys, head)
    words = [f"attention of {'one query' if queries == 1 else 'many queries'}"]
    if text.chance(0.3):
        for name, length in (("q", queries), ("k", keys)):
            cos, sin = (text.argument(part, length, head // 2) for part in ("cos", "sin"))
            rotated = text.helper(f"rotate({name}, {cos}, {sin})")
            q, k = (rotated, k) if name == "q" else (q, rotated)
        words.append("rotary embeddings")
    if text.chance(0.15):
        q = text.helper(f"rms_norm({q}, {text.argument('gq', head)})")
        k = text.helper(f"rms_norm({k}, {text.argument('gk', head)})")
        words.append("normed queries and keys")
    if shared > 1:
        k = text.helper(f"np.repeat({k}, {shared}, axis=0)")
        words.append(f"{shared} heads a key head")
    scores = text.helper(f"{q} @ np.swapaxes({k}, -1, -2) * {head}**-0.5")
    mask = text.rng.choice(("none", "causal", "causal", "window", "added", "distance", "cap"))
    if mask == "causal":
        scores = text.helper(f"causal({scores})")
        words.append("a causal mask")
    elif mask == "window":
        reach = text.rng.choice((16, 32, 64))
        last = f"{scores}.shape[-1] - {scores}.shape[-2]"
        place = text.helper(f"np.arange({scores}.shape[-2])[:, None] + {last} - np.arange({scores}.shape[-1])[None, :]")
        scores = text.helper(f"np.where(({place} >= 0) & ({place} < {reach}), {scores}, -1e9)")
        words.append(f"a window of {reach}")
    elif mask == "added":
        scores = text.helper(f"{scores} + {text.argument('bias', queries, keys)}")
        words.append("an added bias")
    elif mask == "distance":
        slopes = text.argument("slopes", heads)
        place = text.helper(f"np.arange({scores}.shape[-1])[None, :] - np.arange({scores}.shape[-2])[:, None]")
        scores = text.helper(f"{scores} - 0.05 * abs({slopes})[:, None, None] * abs({place})")
        words.append("a bias by distance")
    elif mask == "cap":
        scores = text.helper(f"20 * np.tanh({scores} / 20)")
        words.append("capped scores")
    text.say(" with ".join(words[:1]) + (f", {', '.join(words[1:])}" if words[1:] else ""))
    if text.chance(0.15):
        text.let(f"softmax({scores})", heads, queries, keys)
        return
    v = text.argument("v", heads // shared, keys, head)
    v = text.helper(f"np.repeat({v}, {shared}, axis=0)") if shared > 1 else v
    text.let(f"softmax({scores}) @ {v}", heads, queries, head)
    if text.chance(0.5):
        merged = f"np.swapaxes({text.value}, 0, 1).reshape({text.value}.shape[1], -1)"
        text.let(merged, queries, heads * head)
        if text.chance(0.6):
            columns = text.pick(text.size.inner)
            _product(text, columns)
        _steps(text, text.rng.choice((0, 0, 1)))


def convolution(text: _Text) -> None:
    """Write a convolution of a sequence (each channel alone, or over all channels) or of an image."""
    kind = text.rng.randrange(3)
    if kind == 0:
        channels, length, taps = text.pick(text.size.rows), text.pick(text.size.columns), text.rng.choice((2, 3, 4))
        text.start("x", channels, length)
        w = text.argument("w", channels, taps, scale=0.5)
        padded = text.helper(f"np.pad({text.value}, (({0}, {0}), ({taps - 1}, 0)))")
        terms = [
            f"{w}[:, {tap} : {tap + 1}] * {padded}[:, {tap} : {tap} + {text.value}.shape[1]]" for tap in range(taps)
        ]
        text.let(" + ".join(terms))
        text.say(f"a causal convolution of each channel with {taps} taps")
        _activated(text)
        if text.chance(0.4):
            _gated(text)
    elif kind == 1:
        inputs, outputs = text.pick(text.size.rows), text.pick(text.size.inner)
        length, taps = text.pick(text.size.columns), 3
        x, w = text.argument("x", inputs, length), text.argument("w", outputs, inputs, taps, scale=(3 * inputs) ** -0.5)
        terms = [f"{w}[:, :, {tap}] @ {x}[:, {tap} : {x}.shape[1] - {taps - 1 - tap}]" for tap in range(taps)]
        text.value = x
        text.let(" + ".join(terms), outputs, length - 2)
        text.say("a convolution of a sequence")
        _activated(text)
    else:
        inputs, outputs = text.rng.choice((3, 8, 16, 32)), text.rng.choice((8, 16, 32, 64))
        rows, columns = text.rng.choice((10, 14, 18)), text.rng.choice((10, 18, 34))
        x = text.argument("x", inputs, rows, columns)
        w, b = text.argument("w", outputs, inputs, 3, 3, scale=(9 * inputs) ** -0.5), text.argument("b", outputs)
        text.value = x
        text.lines += [
            f"high, wide = {x}.shape[1] - 2, {x}.shape[2] - 2",
            f"out = np.zeros(({w}.shape[0], high * wide), {x}.dtype)",
            "for r in range(3):",
            "    for s in range(3):",
            f"        out += {w}[:, :, r, s] @ {x}[:, r : r + high, s : s + wide].reshape({x}.shape[0], -1)",
        ]
        text.let(f"np.maximum(out + {b}[:, None], 0)", outputs, (rows - 2) * (columns - 2))
        text.say("a convolution of an image, a bias and a ReLU")
        if text.chance(0.5):
            pooled = f"{text.value}.reshape({w}.shape[0], high // 2, 2, wide // 2, 2).max(axis=(2, 4))"
            text.let(pooled, outputs, (rows - 2) // 2, (columns - 2) // 2)
            text.say("pooling by the greatest of 2 x 2")


def scan(text: _Text) -> None:
    """Write a recurrence over time, a running sum, or a running maximum."""
    kind = text.rng.randrange(3)
    if kind == 0:
        text.start("x", text.pick(text.size.rows), text.pick(text.size.steps))
        decay = text.helper(f"1 / (1 + np.exp(-{text.argument('a', *text.shape)}))")
        text.lines += [
            f"state = np.zeros({text.value}.shape[0], {text.value}.dtype)",
            f"out = np.empty({text.value}.shape, {text.value}.dtype)",
            f"for t in range({text.value}.shape[1]):",
            f"    state = {decay}[:, t] * state + (1 - {decay}[:, t]) * {text.value}[:, t]",
            "    out[:, t] = state",
        ]
        text.let("1.0 * out")
        text.say("a gated recurrence")
    elif kind == 1:
        channels, steps, states = text.pick(text.size.rows), text.pick(text.size.steps), text.rng.choice((4, 8, 16))
        text.start("u", channels, steps)
        delta, a = text.argument("delta", channels, steps), text.argument("a", channels, states)
        b, c = text.argument("b", states, steps), text.argument("c", states, steps)
        text.lines += [
            f"rate = np.maximum({delta}, 0) + np.log(1 + np.exp(-abs({delta})))",
            f"decay = -abs({a})",
            f"state = np.zeros({a}.shape, {text.value}.dtype)",
            f"out = np.empty({text.value}.shape, {text.value}.dtype)",
            f"for t in range({text.value}.shape[1]):",
            "    held = np.exp(rate[:, t, None] * decay) * state",
            f"    state = held + (rate[:, t] * {text.value}[:, t])[:, None] * {b}[None, :, t]",
            f"    out[:, t] = state @ {c}[:, t]",
        ]
        text.let(f"out + {text.value} * {text.argument('skip', channels)}[:, None]")
        text.say("a selective scan")
    else:
        text.start("x", text.pick(text.size.rows), text.pick(text.size.columns))
        fold = text.rng.choice(("np.cumsum({0}, axis=1)", "np.maximum.accumulate({0}, axis=1)"))
        text.let(fold.format(text.value))
        text.say("running sums" if "cumsum" in fold else "running maxima")
    if text.chance(0.5):
        _steps(text, 1)


FAMILIES: Mapping[str, tuple[int, Callable[[_Text], None]]] = {
    "rows": (35, rows),
    "products": (30, products),
    "attention": (20, attention),
    "convolution": (7, convolution),
    "scan": (8, scan),
}
"""The functions that write a kind of program, each with its weight in the draw."""


def drawn(seed: int, number: int) -> Drawn:
    """Return program number ``number`` of a seed."""
    rng = random.Random(f"acceld dataset {seed} {number}")
    family = rng.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
    size = rng.choices(list(SIZES), [one.share for one in SIZES.values()])[0]
    text = _Text(rng, SIZES[size])
    FAMILIES[family][1](text)
    narrow = rng.random() < NARROW_SHARE
    return Drawn(number, family, size, _formula(text, narrow), _inputs(text, narrow))


def _formula(text: _Text, narrow: bool) -> str:
    names = [name for name, _, _ in text.arguments]
    body = [f'"""{_sentence(text.words)}"""']
    if narrow:
        body.append(f"dtype, wide = {names[0]}.dtype, np.float64 if {names[0]}.dtype == np.float64 else np.float32")
        body += [f"{name} = {name}.astype(wide)" for name in names]
    body += text.lines
    body.append(f"return {text.value}.astype(dtype)" if narrow else f"return {text.value}")
    forward = "\n    ".join([f"def forward({', '.join(names)}):", *body])
    # get_inputs needs these imports
    imports = ["import ml_dtypes", "import numpy as np"] if narrow else ["import numpy as np"]
    helpers = [helper for name, helper in HELPERS.items() if f"{name}(" in forward]
    return "\n\n\n".join(["\n".join(imports), *helpers, forward]) + "\n"


def _sentence(words: Sequence[str]) -> str:
    said = ", then ".join(words)
    return f"{said[0].upper()}{said[1:]}."


def _inputs(text: _Text, narrow: bool) -> str:
    dtype = "ml_dtypes.bfloat16" if narrow else "np.float32"
    lines = ["def get_inputs():", "    draw = np.random.standard_normal", "    return ["]
    for _, shape, scale in text.arguments:
        scaled = f"draw({shape})" if scale == 1.0 else f"({scale:.4g} * draw({shape}))"
        lines.append(f"        {scaled}.astype({dtype}),")
    return "\n".join([*lines, "    ]"]) + "\n"
