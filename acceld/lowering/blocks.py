"""Divide one step of a transformer into regions. Each region has a numpy reference, its shapes, and its number of runs.

All facts come from a ``config.json`` of Hugging Face. Weights and PyTorch are not needed. A region ends where the
result of a matrix product has to go through HBM anyway. Equal regions are described once, with a count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from acceld.lowering.configs import Grouped, Latent, Shape

_PRELUDE = '''"""{title}"""

import ml_dtypes  # noqa: F401  (numpy then knows bfloat16)
import numpy as np


def cast(x, dtype):
    """Return x converted to dtype. float64 stays float64, which is used to tell rounding from errors."""
    return x if x.dtype == np.float64 else x.astype(dtype)


'''
_NORM = '''def normalized(x, g):
    """Return x divided by the root of its mean square, and scaled by g. The division is computed in float32."""
    wide = cast(x, "float32")
    return {normed}


'''
_LAYER_NORM = '''def normalized({parameters}):
    """Return x with mean 0 and variance 1{and_then}, all computed in float32."""
    wide = cast(x, "float32")
    wide = wide - wide.mean(axis=-1, keepdims=True)
    return {layered}


'''
_ROTATED = '''def rotated(x, cos, sin):
    """Return rotary positions of heads: each element of the first half is rotated with one of the second half."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None, :half], sin[:, None, :half]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


'''


_TURNED = '''def turned(x, cos, sin):
    """Return rotary positions of x: each even element is rotated with the odd element after it."""
    pairs = x.reshape(x.shape[:-1] + (x.shape[-1] // 2, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


'''
_BARE = '''def bare(x):
    """Return x divided by the root of its mean square. The division is computed in float32."""
    wide = cast(x, "float32")
    return {bare}


'''
_CHOSEN = '''def chosen(scores, count):
    """Return the positions of the count greatest scores, greatest first. All scores are above -2."""
    places = np.arange(scores.shape[-1])
    found = []
    for _ in range(count):
        best = scores.argmax(axis=-1)[..., None]
        found.append(best)
        scores = np.where(places == best, -2.0, scores)
    return np.concatenate(found, axis=-1)


'''


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a region: its name, shape and dtype. ``high`` is the greatest value in an array of integers.

    For an array of floats, ``high`` is None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int | None = None
    spread: float = 1.0
    """Standard deviation of the random values with which the argument is filled. Weights with more columns get a
    smaller one, so that results stay near 1.
    """


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a step that one kernel computes.

    ``text`` is the source of its numpy reference, ``operands`` are its arguments, and ``count`` is how often one step
    runs it.
    """

    name: str
    text: str
    operands: tuple[Operand, ...]
    count: int


@dataclass(frozen=True, slots=True)
class StepSize:
    """The size of a step: ``batch`` sequences of ``length`` tokens.

    If ``decode`` is True, a step computes one new token of each sequence. Else it computes whole sequences.
    """

    batch: int
    length: int
    decode: bool

    @property
    def tokens(self) -> int:
        """Return the number of tokens that pass through the layers in one step."""
        return self.batch if self.decode else self.batch * self.length


def regions_of(shape: Shape, step: StepSize) -> list[Region]:
    """Return the regions of one step of a model, in the order in which they run.

    ``shape`` has the sizes and forms of the model's layers, and ``step`` the number of sequences and tokens.
    """
    made = _Regions(shape, step)
    found = _latent_regions(made, shape.latent) if shape.latent is not None else made.attending()
    if shape.dense_layers or not shape.experts:
        found += [made.gated(), made.down()]
    if shape.grouped is not None:
        found += [made.grouped_router(shape.grouped), made.expert(), made.shared(shape.grouped)]
        found += [made.shared_down(shape.grouped), made.combined(shared=True)]
    elif shape.experts:
        found += [made.router(), made.expert(), made.combined()]
    if shape.post_norms:
        found.append(made.post_norm())
    return [*found, made.logits()]


def _latent_regions(made: _Regions, latent: Latent) -> list[Region]:
    """Return the regions of multi-head latent attention, from the norm before it to its output product."""
    found = [made.latents(latent), *([made.latent_queries(latent)] if latent.q_rank else [])]
    found.append(made.latent_positions(latent))
    if made.step.decode:
        found += [made.absorbed(latent), made.latent_decoding(latent), made.latent_values(latent)]
    else:
        found += [made.latent_keys(latent), made.latent_attention(latent)]
    return [*found, made.output(latent.value)]


class _Regions:
    """The generator of the regions of one step of a model. Most methods return a single region."""

    def __init__(self, shape: Shape, step: StepSize) -> None:
        self.shape = shape
        self.step = step

    def _region(self, name: str, title: str, helpers: str, body: str, count: int, *operands: Operand) -> Region:
        """Return a region, with the source of its reference.

        ``title`` is the docstring of the reference's ``forward``, and ``body`` has its statements. ``helpers`` is the
        source of functions that it calls. ``count`` is how often a step runs the region.
        """
        s, names = self.shape, ", ".join(one.name for one in operands)
        ratio = f"wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + {s.eps!r})"
        shifted = f'cast({ratio} * (1.0 + cast(g, "float32")), "{s.dtype}")'
        factor = f'({"1.0 + " if s.shifted_norms else ""}cast(g, "float32"))'
        layered = ratio + (f" * {factor}" if "g" in s.norm_parameters else "")
        layered += ' + cast(c, "float32")' if "c" in s.norm_parameters else ""
        then = [said for name, said in (("g", "scaled by g"), ("c", "shifted by c")) if name in s.norm_parameters]
        helpers = helpers.replace("{layered}", f'cast({layered}, "{s.dtype}")')
        helpers = helpers.replace("{and_then}", ", ".join(["", *then])).replace("{parameters}", self._norm_arguments)
        helpers = helpers.replace("{bare}", f'cast({ratio}, "{s.dtype}")')
        helpers = helpers.replace("{normed}", shifted if s.shifted_norms else f'cast({ratio}, "{s.dtype}") * g')
        forward = f'def forward({names}):\n    """{title}"""\n' + "".join(f"    {line}\n" for line in body.splitlines())
        text = _PRELUDE.format(title=title) + helpers + _drawn(operands) + forward
        if "math.erf" in body:
            text = text.replace("import ml_dtypes", "import math\n\nimport ml_dtypes", 1)
        return Region(name, text, operands, count)

    @property
    def _norm(self) -> tuple[str, str]:
        """Return the name of the model's norm for docstrings, and the source of the function that computes it."""
        return ("Layer norm", _LAYER_NORM) if self.shape.layer_norms else ("Root-mean-square norm", _NORM)

    @property
    def _normed(self) -> str:
        """Return the source text of the norm of a layer's input ``x``."""
        return f"normalized({self._norm_arguments})"

    @property
    def _norm_arguments(self) -> str:
        """Return the names of the arguments of the norm of a layer's input ``x``, with commas between them."""
        return ", ".join(["x", *(self.shape.norm_parameters if self.shape.layer_norms else "g")])

    def _norm_weights(self) -> list[Operand]:
        """Return the arguments of the norm of a layer's input: its weight, and in most layer norms its bias."""
        names = self.shape.norm_parameters if self.shape.layer_norms else "g"
        return [self._values(name, self.shape.hidden) for name in names]

    def _weights(self, name: str, rows: int, columns: int) -> Operand:
        """Return an argument of a region: a matrix of weights of ``rows`` x ``columns``."""
        return Operand(name, (rows, columns), self.shape.dtype, spread=columns**-0.5)

    def _added(self, result: str) -> str:
        """Return the source text of the residual ``x`` plus a layer's result. The result is multiplied by the model's
        residual factor.
        """
        factor = self.shape.residual
        return f"x + {result}" if factor == 1.0 else f"x + ({result}) * {factor!r}"

    def _values(self, name: str, *shape: int) -> Operand:
        """Return an argument of a region: an array of activations."""
        return Operand(name, shape, self.shape.dtype)

    @property
    def routed_layers(self) -> int:
        """Return the number of layers with experts."""
        return self.shape.layers - self.shape.dense_layers

    @property
    def dense_layers(self) -> int:
        """Return the number of layers without experts."""
        return self.shape.dense_layers if self.shape.experts else self.shape.layers

    @property
    def dense_width(self) -> int:
        """Return the width of the gated feed-forward layer in layers without experts."""
        return self.shape.dense if self.shape.experts else self.shape.intermediate

    def _biases(self, given: bool, **rows: int) -> list[Operand]:
        """Return an argument for each bias; ``rows`` has the lengths of the biases by name. Return [] if ``given`` is
        False.
        """
        return [self._values(name, count) for name, count in rows.items()] if given else []

    def _activated(self, gate: str, up: str) -> str:
        """Return the source text of statements that set ``b`` to the activation of ``gate`` times ``up``.

        ``gate`` and ``up`` are the source texts of two matrix products. ``up`` is not read in a layer without a gate, whose
        up product is ``gate``.
        """
        s = self.shape
        if s.activation == "clamped_silu":
            return (
                f"a = np.minimum({gate}, {s.limit!r})\nu = np.clip({up}, {-s.limit!r}, {s.limit!r})\n"
                "b = a / (1.0 + np.exp(-1.702 * a)) * (u + 1.0)"
            )
        curve = {
            "silu": "a / (1.0 + np.exp(-a))",
            "gelu": "0.5 * a * (1.0 + np.vectorize(math.erf)(a * 0.7071067811865476).astype(a.dtype))",
            "gelu_tanh": "0.5 * a * (1.0 + np.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
            "relu": "np.maximum(a, 0.0)",
            "relu2": "np.square(np.maximum(a, 0.0))",
        }[s.activation]
        return f"a = {gate}\nb = {curve}" + (f" * ({up})" if s.gated else "")

    @property
    def _gate(self) -> str:
        """Return the name of the model's activation for docstrings, such as ``SiLU``."""
        return {
            "silu": "SiLU",
            "gelu": "GELU",
            "gelu_tanh": "GELU",
            "relu": "ReLU",
            "relu2": "Squared ReLU",
            "clamped_silu": "clamped SiLU",
        }[self.shape.activation]

    def attending(self) -> list[Region]:
        """Return the regions of attention, from the norm before it to its output product."""
        s, window = self.shape, self.shape.window
        # in a sequence that fits the window, the window hides no token
        windowed = s.windowed_layers if self.step.length > window else 0
        found = [self.projections(), self.positions()]
        if s.tempered:
            found.append(self.tempered())
        if s.chunk and self.step.length > s.chunk:
            windowed = s.layers - s.still_layers
            if windowed:
                found.append(
                    self.decoding(windowed, s.chunk, "attention_chunk") if self.step.decode else self.chunked(windowed)
                )
            return [*found, *self._whole_attention(s.layers - windowed), self.output()]
        if windowed:
            found.append(self.decoding(windowed, window) if self.step.decode else self.windowed(windowed))
        return [*found, *self._whole_attention(s.layers - windowed), self.output()]

    def _whole_attention(self, layers: int) -> list[Region]:
        """Return the region of attention to all earlier tokens, which ``layers`` layers run, as a list; [] if no layer
        does.
        """
        if not layers:
            return []
        return [self.decoding(layers) if self.step.decode else self.attention(layers)]

    def projections(self) -> Region:
        """Return the region of the norm before attention and of the matrix products that compute queries, keys and
        values.
        """
        s = self.shape
        made = [f"{'h' if s.pre_norms else 'x'} @ w{one}.T" + (f" + b{one}" if s.qkv_bias else "") for one in "qkv"]
        if s.pre_norms:
            name, title = "norm_qkv", f"{self._norm[0]}, then queries, keys and values"
            norms, body = self._norm_weights(), f"h = {self._normed}\n"
        else:
            name, title, norms, body = "qkv", "Queries, keys and values", [], ""
        if s.whole_norms:
            title += ", and the norms of queries and of keys"
            norms += [self._values("gq", s.heads * s.head), self._values("gk", s.kv_heads * s.head)]
            made = [f"normalized({made[0]}, gq)", f"normalized({made[1]}, gk)", made[2]]
        return self._region(
            name,
            f"{title}.",
            self._norm[1],
            f"{body}return {', '.join(made)}",
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            *norms,
            self._weights("wq", s.heads * s.head, s.hidden),
            self._weights("wk", s.kv_heads * s.head, s.hidden),
            self._weights("wv", s.kv_heads * s.head, s.hidden),
            *self._biases(s.qkv_bias, bq=s.heads * s.head, bk=s.kv_heads * s.head, bv=s.kv_heads * s.head),
        )

    def positions(self) -> Region:
        """Return the region of rotary positions of queries and keys. In some models it begins with a norm of each head."""
        s, tokens = self.shape, self.step.tokens
        width = s.rotated or s.head
        operands = [
            self._values("q", tokens, s.heads, s.head),
            self._values("k", tokens, s.kv_heads, s.head),
            self._values("cos", tokens, width // 2 if s.pairs else width),
            self._values("sin", tokens, width // 2 if s.pairs else width),
        ]
        body, helpers = "", _TURNED if s.pairs else _ROTATED
        if s.head_norms and s.bare_norms:
            body, helpers = "q, k = bare(q), bare(k)\n", _BARE + helpers
        elif s.head_norms:
            body, helpers = "q, k = normalized(q, gq), normalized(k, gk)\n", _NORM + helpers
            operands += [self._values("gq", s.head), self._values("gk", s.head)]
        title = "Norm of each head, then rotary positions." if s.head_norms else "Rotary positions of queries and keys."
        made = [
            f"turned({one}, cos[:, None], sin[:, None])" if s.pairs else f"rotated({one}, cos, sin)" for one in "qk"
        ]
        if s.rotated:
            title = title.replace(".", f" of the first {width} elements of a head.")
            first = [one.replace("q,", f"q[..., :{width}],").replace("k,", f"k[..., :{width}],") for one in made]
            made = [f"np.concatenate([{a}, {one}[..., {width}:]], axis=-1)" for a, one in zip(first, "qk", strict=True)]
        return self._region(
            "rope", title, helpers, body + f"return {', '.join(made)}", s.layers - s.still_layers, *operands
        )

    def tempered(self) -> Region:
        """Return the region that multiplies the queries of each token by a factor that grows with the token's position.
        Only the layers without rotary positions have this region.
        """
        s, tokens = self.shape, self.step.tokens
        return self._region(
            "scale_queries",
            "Queries times a factor of each token, which grows with the token's place.",
            "",
            "return q * f[:, None, None]",
            s.still_layers,
            self._values("q", tokens, s.heads, s.head),
            self._values("f", tokens),
        )

    def _attended(self, scores: str, seen: str, mask: str, values: str, sinks: str, begun: str = "") -> str:
        """Return the source text of statements that weight ``values`` by a softmax of the model's scaled scores.

        The model's soft cap and attention sinks are included. ``sinks`` is the source text of the sinks, indexed so
        that they have the axes of the scores. The other arguments are those of the module's function ``_attended``.
        """
        s = self.shape
        scale, sinks = s.scale or s.head**-0.5, sinks if s.sinks else ""
        return _attended(scores, scale, seen, mask, s.dtype, values, softcap=s.softcap, sinks=sinks, begun=begun)

    def _sinks(self) -> list[Operand]:
        """Return the argument with an attention sink for each head. Return no argument if the model has no sinks."""
        s = self.shape
        return [self._values("sinks", s.kv_heads, s.heads // s.kv_heads)] if s.sinks else []

    def _over_sequences(self, name: str, title: str, body: str, layers: int) -> Region:
        """Return a region of attention over whole sequences, which ``layers`` layers run."""
        s, batch, length = self.shape, self.step.batch, self.step.length
        q = self._values("q", batch, s.kv_heads, s.heads // s.kv_heads, length, s.head)
        k, v = (self._values(one, batch, s.kv_heads, length, s.head) for one in ("k", "v"))
        return self._region(name, title, "", body, layers, q, k, v, *self._sinks())

    def attention(self, layers: int, window: int = 0) -> Region:
        """Return the region of causal attention over whole sequences. Several query heads may share one key head.

        If ``window`` is not 0, a token sees only the last ``window`` tokens.
        """
        length = self.step.length
        scores, seen = "q @ np.swapaxes(k, -1, -2)[:, :, None]", _causal(length)
        if window:
            seen = f"({seen}) & (np.arange({length})[:, None] - np.arange({length})[None, :] < {window})"
        body = self._attended(scores, seen, "seen", "v[:, :, None]", "sinks[:, :, None, None]")
        title = f"Causal attention{f' to the last {window} tokens' if window else ''}: scores, mask, softmax, weighted values."
        return self._over_sequences("attention_window" if window else "attention", title, body, layers)

    def chunked(self, layers: int) -> Region:
        """Return the region of causal attention in chunks, where a token attends only to earlier tokens of its own
        chunk.
        """
        s, batch, length, width = self.shape, self.step.batch, self.step.length, self.shape.chunk
        group, chunks = s.heads // s.kv_heads, math.ceil(length / width)
        after, whole = chunks * width - length, chunks * width
        pad = f"((0, 0), (0, 0), (0, {after}), (0, 0))"
        lines = []
        if after:
            lines = [f"q = np.pad(q, {pad.replace('(0, 0), ', '(0, 0), (0, 0), ', 1)})"]
            lines += [f"{one} = np.pad({one}, {pad})" for one in "kv"]
        lines.append(f"q = q.reshape({(batch, s.kv_heads, group, chunks, width, s.head)!r})")
        lines += [f"{one} = {one}.reshape({(batch, s.kv_heads, chunks, width, s.head)!r})" for one in "kv"]
        scores = "q @ np.swapaxes(k, -1, -2)[:, :, None]"
        body = "\n".join([*lines, self._attended(scores, _causal(width), "seen", "v[:, :, None]", "")])
        body = body.replace("return ", "a = ")
        left = f"[..., :{length}, :]" if after else ""
        body += f"\nreturn a.reshape({(batch, s.kv_heads, group, whole, s.head)!r}){left}"
        title = f"Causal attention in chunks of {width} tokens: scores, mask, softmax, weighted values."
        return self._over_sequences("attention_chunk", title, body, layers)

    def windowed(self, layers: int) -> Region:
        """Return the region of causal attention with a window, where a token attends only to as many tokens as the
        window has.

        Sequences are cut into blocks as long as the window. Each block attends to itself and to the previous block,
        because no token attends to earlier ones.
        """
        s, batch, length, width = self.shape, self.step.batch, self.step.length, self.shape.window
        if length <= 2 * width:  # blocks save no work if two blocks together have all tokens of a sequence
            return self.attention(layers, width)
        group, blocks = s.heads // s.kv_heads, math.ceil(length / width)
        after, whole = blocks * width - length, blocks * width
        cut = (batch, s.kv_heads, blocks, width, s.head)
        lines = []
        if after:
            lines.append(f"q = np.pad(q, ((0, 0), (0, 0), (0, 0), (0, {after}), (0, 0)))")
        lines.append(f"q = q.reshape({(batch, s.kv_heads, group, *cut[2:])!r})")
        for one in "kv":
            parts = ", ".join(f"{one}[:, :, {start}].reshape({cut!r})" for start in (f":{whole}", f"{width}:"))
            lines.append(f"{one} = np.pad({one}, ((0, 0), (0, 0), ({width}, {after}), (0, 0)))")
            lines.append(f"{one} = np.concatenate([{parts}], axis=3)")
        lines += [
            f"row, column = np.arange({width})[:, None], np.arange({2 * width})[None, :]",
            self._attended(
                "q @ np.swapaxes(k, -1, -2)[:, :, None]",
                f"(column <= row + {width}) & (column > row)",
                "seen",
                "v[:, :, None]",
                "sinks[:, :, None, None, None]",
                f"np.arange({blocks})[:, None, None] * {width} + column >= {width}",
            ),
        ]
        left = "" if not after else f"[..., :{length}, :]"
        body = "\n".join(lines).replace("return ", "a = ")
        body += f"\nreturn a.reshape({(batch, s.kv_heads, group, whole, s.head)!r}){left}"
        title = f"Causal attention to the last {width} tokens, in blocks: scores, mask, softmax, weighted values."
        return self._over_sequences("attention_window", title, body, layers)

    def decoding(self, layers: int, window: int = 0, name: str = "attention_window") -> Region:
        """Return the region of attention in which one new token of each sequence reads the cached keys and values.

        If ``window`` is not 0, the cache has only the last ``window`` tokens, and the region's name begins with ``name``.
        """
        s, batch, length = self.shape, self.step.batch, window or self.step.length
        group = s.heads // s.kv_heads
        scores, seen = "q @ np.swapaxes(k, -1, -2)", _cached(length)
        body = self._attended(scores, seen, "seen[:, None, None, :]", "v", "sinks[:, :, None]")
        return self._region(
            f"{name}_decode" if window else "attention_decode",
            "Attention of one token over the cache, up to each sequence's length.",
            "",
            body,
            layers,
            self._values("q", batch, s.kv_heads, group, s.head),
            self._values("k", batch, s.kv_heads, length, s.head),
            self._values("v", batch, s.kv_heads, length, s.head),
            Operand("lengths", (batch,), "int32", high=length),
            *self._sinks(),
        )

    def output(self, value: int = 0) -> Region:
        """Return the region of the output product of attention.

        The region also adds the residual, unless the model norms the product's result first. ``value`` is the width of
        a head's values. 0 stands for the width of a head's keys.
        """
        s, width = self.shape, value or self.shape.head
        made = "a @ wo.T" + (" + bo" if s.output_bias else "")
        return self._region(
            "attention_output",
            "Output product of the attention" + ("." if s.post_norms else ", and the residual."),
            "",
            f"return {made if s.post_norms else self._added(made)}",
            s.layers,
            *([] if s.post_norms else [self._values("x", self.step.tokens, s.hidden)]),
            self._values("a", self.step.tokens, s.heads * width),
            self._weights("wo", s.hidden, s.heads * width),
            *self._biases(s.output_bias, bo=s.hidden),
        )

    def post_norm(self) -> Region:
        """Return the region that norms the result of attention or of the feed-forward layer, and adds the residual."""
        s = self.shape
        return self._region(
            "post_norm",
            "The residual, plus the root-mean-square norm of a layer's result.",
            _NORM,
            "return x + normalized(y, g)",
            2 * s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("y", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
        )

    def gated(self) -> Region:
        """Return the region of the norm before the feed-forward layer and of its products: gate and up, or up alone."""
        s, width = self.shape, self.dense_width
        bias = s.layer_bias and not s.experts
        if not s.gated:
            made = self._activated(f"h @ wu.T{' + bu' if bias else ''}", "")
            return self._region(
                "norm_up",
                f"{self._norm[0]}, then {self._gate} of the up product.",
                self._norm[1],
                f"h = {self._normed}\n{made}\nreturn b",
                self.dense_layers,
                self._values("x", self.step.tokens, s.hidden),
                *self._norm_weights(),
                self._weights("wu", width, s.hidden),
                *self._biases(bias, bu=width),
            )
        more, title = (
            (" + bg", " + bu") if bias else ("", ""),
            f"{self._gate} of the gate product times the up product.",
        )
        given = "h" if s.pre_norms else "x"
        body = f"{self._activated(f'{given} @ wg.T{more[0]}', f'{given} @ wu.T{more[1]}')}\nreturn b"
        return self._region(
            "norm_gate_up" if s.pre_norms else "gate_up",
            f"{self._norm[0]}, then {title}" if s.pre_norms else title,
            self._norm[1] if s.pre_norms else "",
            f"h = {self._normed}\n{body}" if s.pre_norms else body,
            self.dense_layers,
            self._values("x", self.step.tokens, s.hidden),
            *(self._norm_weights() if s.pre_norms else []),
            self._weights("wg", width, s.hidden),
            self._weights("wu", width, s.hidden),
            *self._biases(bias, bg=width, bu=width),
        )

    def down(self) -> Region:
        """Return the region of the feed-forward layer's down product.

        The region also adds the residual, unless the model norms the product's result first.
        """
        s, width = self.shape, self.dense_width
        bias = s.layer_bias and not s.experts
        made = "h @ wd.T" + (" + bd" if bias else "")
        return self._region(
            "down",
            "Down product." if s.post_norms else "Down product, and the residual.",
            "",
            f"return {made if s.post_norms else self._added(made)}",
            self.dense_layers,
            *([] if s.post_norms else [self._values("x", self.step.tokens, s.hidden)]),
            self._values("h", self.step.tokens, width),
            self._weights("wd", s.hidden, width),
            *self._biases(bias, bd=s.hidden),
        )

    def router(self) -> Region:
        """Return the region of the norm before the experts and of the choice of experts for each token."""
        s = self.shape
        body = (
            "h = normalized(x, g)\n"
            f"scores = cast(h @ wr.T{' + br' if s.layer_bias else ''}, 'float32')\n"
            "p = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
            "p = p / p.sum(axis=-1, keepdims=True)\n"
            f"places = np.arange({s.experts})\n"
            "chosen, weights = [], []\n"
            f"for _ in range({s.active}):\n"
            "    best = p.argmax(axis=-1)\n"
            "    chosen.append(best)\n"
            "    weights.append(p.max(axis=-1))\n"
            "    p = np.where(places == best[:, None], -1.0, p)\n"
            "w = np.stack(weights, axis=-1)\n"
            f"return h, np.stack(chosen, axis=-1), w{' / w.sum(axis=-1, keepdims=True)' if s.renormalized else ''}"
        )
        return self._region(
            "router",
            f"Root-mean-square norm, then the {s.active} likeliest of {s.experts} experts and their weights.",
            _NORM,
            body,
            self.routed_layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wr", s.experts, s.hidden),
            *self._biases(s.layer_bias, br=s.experts),
        )

    def expert(self) -> Region:
        """Return the region of one expert, for as many tokens as an expert gets on average if at least one token uses
        it.
        """
        s, chosen = self.shape, self.step.tokens * self.shape.active
        # C independent choices among E experts reach E (1 - (1 - 1/E)^C) experts. With few tokens, most experts are not
        # used.
        reached = max(1, min(s.experts, round(s.experts * (1 - (1 - 1 / s.experts) ** chosen))))
        rows = max(1, math.ceil(chosen / reached))
        more = (" + bg", " + bu") if s.layer_bias else ("", "")
        result = "(b @ wd.T + bd)" if s.layer_bias else "b @ wd.T"
        gathered, result = (
            ("h = x[ids] * p[:, None]", result) if s.weighted_inputs else ("h = x[ids]", f"{result} * p[:, None]")
        )
        return self._region(
            "expert",
            "One expert: its tokens are gathered, then gate, up and down products, times their weights."
            if not s.weighted_inputs
            else "One expert: its tokens are gathered and multiplied by their weights, then gate, up and down products.",
            "",
            f"{gathered}\n{self._activated(f'h @ wg.T{more[0]}', f'h @ wu.T{more[1]}')}\nreturn {result}",
            self.routed_layers * reached,
            self._values("x", self.step.tokens, s.hidden),
            Operand("ids", (rows,), "int32", high=self.step.tokens - 1),
            self._values("p", rows),
            self._weights("wg", s.intermediate, s.hidden),
            self._weights("wu", s.intermediate, s.hidden),
            self._weights("wd", s.hidden, s.intermediate),
            *self._biases(s.layer_bias, bg=s.intermediate, bu=s.intermediate, bd=s.hidden),
        )

    def combined(self, *, shared: bool = False) -> Region:
        """Return the region that adds the results of each token's experts to the residual.

        If ``shared`` is True, the region also adds the result of the shared experts.
        """
        s, tokens = self.shape, self.step.tokens
        return self._region(
            "combine",
            "Sum of each token's experts, and the residual.",
            "",
            f"return {self._added(('z + ' if shared else '') + 'y[places].sum(axis=1)')}",
            self.routed_layers,
            self._values("x", tokens, s.hidden),
            *([self._values("z", tokens, s.hidden)] if shared else []),
            self._values("y", tokens * s.active, s.hidden),
            Operand("places", (tokens, s.active), "int32", high=tokens * s.active - 1),
        )

    # latent attention, and experts in groups

    def latents(self, latent: Latent) -> Region:
        """Return the region of the norm before attention and of the products that compute the two latents.

        One latent is for queries, the other is for keys and values. Some models compute queries without a latent.
        """
        s, rank = self.shape, latent.kv_rank
        rows = latent.q_rank or s.heads * (latent.nope + latent.rope)
        q = "normalized(h @ wq.T, gq)" if latent.q_rank else "h @ wq.T"
        what = "the normed latents of queries and" if latent.q_rank else "queries, the normed latents"
        return self._region(
            "norm_latents",
            f"Root-mean-square norm, then {what} of keys and values, and the key's position part.",
            _NORM,
            f"h = normalized(x, g)\nc = h @ wkv.T\nreturn {q}, normalized(c[:, :{rank}], gkv), c[:, {rank}:]",
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wq", rows, s.hidden),
            *([self._values("gq", latent.q_rank)] if latent.q_rank else []),
            self._weights("wkv", rank + latent.rope, s.hidden),
            self._values("gkv", rank),
        )

    def latent_queries(self, latent: Latent) -> Region:
        """Return the region of the matrix product that computes the queries of all heads from the latent of queries."""
        rows = self.shape.heads * (latent.nope + latent.rope)
        return self._product("queries", "Queries of all heads from their latent.", latent.q_rank, rows)

    def latent_keys(self, latent: Latent) -> Region:
        """Return the region of the matrix product that computes the keys and values of all heads from their common
        latent.
        """
        rows = self.shape.heads * (latent.nope + latent.value)
        return self._product("keys_values", "Keys and values of all heads from their latent.", latent.kv_rank, rows)

    def _product(self, name: str, title: str, columns: int, rows: int) -> Region:
        """Return a region that multiplies rows of ``columns`` elements by weights of ``rows`` x ``columns``."""
        operands = (self._values("c", self.step.tokens, columns), self._weights("w", rows, columns))
        return self._region(name, title, "", "return c @ w.T", self.shape.layers, *operands)

    def latent_positions(self, latent: Latent) -> Region:
        """Return the region of rotary positions for those parts of the queries and of the shared key to which positions
        are applied.
        """
        s, tokens, half = self.shape, self.step.tokens, latent.rope // 2
        return self._region(
            "rope",
            "Rotary positions of queries, and of the key that all heads share.",
            _TURNED,
            "return turned(q, cos[:, None], sin[:, None]), turned(k, cos, sin)",
            s.layers,
            self._values("q", tokens, s.heads, latent.rope),
            self._values("k", tokens, latent.rope),
            self._values("cos", tokens, half),
            self._values("sin", tokens, half),
        )

    def latent_attention(self, latent: Latent) -> Region:
        """Return the region of causal latent attention over whole sequences.

        A score is the sum of two scores: of the parts with positions, and of the parts without.
        """
        s, batch, length = self.shape, self.step.batch, self.step.length
        scores, seen = "q @ np.swapaxes(k, -1, -2) + qr @ np.swapaxes(kr, -1, -2)[:, None]", _causal(length)
        body = _attended(scores, latent.scale, seen, "seen", s.dtype, "v")
        return self._region(
            "attention",
            "Causal attention: scores of both parts of a head, mask, softmax, weighted values.",
            "",
            body,
            s.layers,
            self._values("q", batch, s.heads, length, latent.nope),
            self._values("qr", batch, s.heads, length, latent.rope),
            self._values("k", batch, s.heads, length, latent.nope),
            self._values("kr", batch, length, latent.rope),
            self._values("v", batch, s.heads, length, latent.value),
        )

    def absorbed(self, latent: Latent) -> Region:
        """Return the region that multiplies queries by the weights which would compute keys from latents.

        The results attend to latents directly, so no keys need to be cached.
        """
        s = self.shape
        return self._region(
            "absorb_queries",
            "Queries of each head as rows of the latent.",
            "",
            "return np.swapaxes(np.swapaxes(q, 0, 1) @ w, 0, 1)",
            s.layers,
            self._values("q", self.step.batch, s.heads, latent.nope),
            Operand("w", (s.heads, latent.nope, latent.kv_rank), s.dtype, spread=latent.nope**-0.5),
        )

    def latent_decoding(self, latent: Latent) -> Region:
        """Return the region of attention in which one new token of each sequence reads the cached latents.

        All heads share the latents.
        """
        s, batch, length = self.shape, self.step.batch, self.step.length
        scores, seen = "q @ np.swapaxes(c, -1, -2) + qr @ np.swapaxes(kr, -1, -2)", _cached(length)
        body = _attended(scores, latent.scale, seen, "seen[:, None, :]", s.dtype, "c")
        return self._region(
            "attention_decode",
            "Attention of one token over the cache of latents, up to each sequence's length.",
            "",
            body,
            s.layers,
            self._values("q", batch, s.heads, latent.kv_rank),
            self._values("qr", batch, s.heads, latent.rope),
            self._values("c", batch, length, latent.kv_rank),
            self._values("kr", batch, length, latent.rope),
            Operand("lengths", (batch,), "int32", high=length),
        )

    def latent_values(self, latent: Latent) -> Region:
        """Return the region that computes each head's values from the head's weighted sum of latents."""
        s = self.shape
        return self._region(
            "absorb_values",
            "Values of each head from its weighted latents.",
            "",
            "return np.swapaxes(np.swapaxes(a, 0, 1) @ w, 0, 1)",
            s.layers,
            self._values("a", self.step.batch, s.heads, latent.kv_rank),
            Operand("w", (s.heads, latent.kv_rank, latent.value), s.dtype, spread=latent.kv_rank**-0.5),
        )

    def grouped_router(self, grouped: Grouped) -> Region:
        """Return the region of the norm before the experts and of the choice of experts for each token.

        First groups of experts are chosen, then experts of these groups.
        """
        s, tokens = self.shape, self.step.tokens
        of = s.experts // grouped.groups
        body = ["h = normalized(x, g)", "scores = cast(h @ wr.T, 'float32')"]
        if grouped.scores == "sigmoid":
            body.append("scores = 1.0 / (1.0 + np.exp(-scores))")
        else:
            body += ["scores = np.exp(scores - scores.max(axis=-1, keepdims=True))"]
            body += ["scores = scores / scores.sum(axis=-1, keepdims=True)"]
        body.append("ranked = scores + bias" if grouped.corrected else "ranked = scores")
        if grouped.groups > grouped.active_groups:
            body += [
                f"parts = ranked.reshape(({tokens}, {grouped.groups}, {of}))",
                "first = parts.max(axis=-1)",
            ]
            if grouped.pair_ranked:
                hidden = f"np.where(np.arange({of}) == parts.argmax(axis=-1)[..., None], -1.0, parts)"
                body.append(f"first = first + {hidden}.max(axis=-1)")
            body += [
                f"groups = chosen(first, {grouped.active_groups})",
                f"kept = (np.arange({grouped.groups})[:, None] == groups[:, None, :]).any(axis=-1)",
                f"ranked = np.where(kept[:, :, None], parts, -1.0).reshape(({tokens}, {s.experts}))",
            ]
        weights = "w / w.sum(axis=-1, keepdims=True)" if grouped.renormalized else "w"
        body += [
            f"ids = chosen(ranked, {s.active})",
            "w = np.take_along_axis(scores, ids, axis=-1)",
            f"return h, ids, {weights}" + (f" * {grouped.scale!r}" if grouped.scale != 1.0 else ""),
        ]
        groups = " in the best groups" if grouped.groups > grouped.active_groups else ""
        return self._region(
            "router",
            f"Root-mean-square norm, then {s.active} of {s.experts} experts{groups}, and their weights.",
            _NORM + _CHOSEN,
            "\n".join(body),
            self.routed_layers,
            self._values("x", tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wr", s.experts, s.hidden),
            *([Operand("bias", (s.experts,), "float32", spread=0.01)] if grouped.corrected else []),
        )

    def shared(self, grouped: Grouped) -> Region:
        """Return the region of the gate and up products of the experts that every token uses."""
        s = self.shape
        return self._region(
            "shared_gate_up",
            "Experts that every token has: SiLU of the gate product times the up product.",
            "",
            "a = h @ wg.T\nreturn a / (1.0 + np.exp(-a)) * (h @ wu.T)",
            self.routed_layers,
            self._values("h", self.step.tokens, s.hidden),
            self._weights("wg", grouped.shared, s.hidden),
            self._weights("wu", grouped.shared, s.hidden),
        )

    def shared_down(self, grouped: Grouped) -> Region:
        """Return the region of the down product of the experts that every token uses.

        In some models it also weights each token's result, by the sigmoid of a product of the token's normed input.
        """
        s, tokens = self.shape, self.step.tokens
        more = [self._values("x", tokens, s.hidden), self._weights("ws", 1, s.hidden)] if grouped.shared_gate else []
        return self._region(
            "shared_down",
            "Experts that every token has: down product" + (", times the token's weight." if more else "."),
            "",
            "return h @ wd.T" + (" / (1.0 + np.exp(-(x @ ws.T)))" if more else ""),
            self.routed_layers,
            self._values("h", tokens, grouped.shared),
            self._weights("wd", s.hidden, grouped.shared),
            *more,
        )

    def logits(self) -> Region:
        """Return the region of the final norm and of the product with the vocabulary, for each sequence's last token."""
        s = self.shape
        product = f"{self._normed} @ w.T"
        body = f"return {product}" + (f" * {1 / s.logits!r}" if s.logits != 1.0 else "")
        if s.logits_softcap:
            body = f"z = {product}\nreturn {s.logits_softcap!r} * np.tanh(z * {1 / s.logits_softcap!r})"
        return self._region(
            "logits",
            f"{self._norm[0]}, then the product with the vocabulary.",
            self._norm[1],
            body,
            1,
            self._values("x", self.step.batch, s.hidden),
            *self._norm_weights(),
            self._weights("w", s.vocabulary, s.hidden),
        )


def _drawn(operands: tuple[Operand, ...]) -> str:
    """Return the source text of a region's function ``get_inputs``, which returns random arguments for the region."""
    lines = ["def get_inputs():", '    """Draw the arrays in order from numpy\'s global generator."""']
    for one in operands:
        if one.high is not None:
            drawn = f"np.random.randint({min(1, one.high)}, {one.high + 1}, {one.shape!r})"
        else:
            drawn = f"np.random.standard_normal({one.shape!r})" + (f" * {one.spread:.6g}" if one.spread != 1.0 else "")
            drawn = f"({drawn})"
        lines.append(f'    {one.name} = {drawn}.astype("{one.dtype}")')
    lines.append(f"    return [{', '.join(one.name for one in operands)}]")
    return "\n".join(lines) + "\n\n\n"


def _attended(
    scores: str,
    scale: float,
    seen: str,
    mask: str,
    dtype: str,
    values: str,
    *,
    softcap: float = 0.0,
    sinks: str = "",
    begun: str = "",
) -> str:
    """Return the source text of statements that weight ``values`` by a softmax of ``scores`` times ``scale``.

    All texts are numpy expressions. ``seen`` is the mask, and ``mask`` is the mask with the axes of the scores, such as
    ``seen[:, None]``. ``begun`` is a second mask. Where a mask is False, the weight is 0. ``softcap`` bounds the scores
    by a tanh; 0 means no bound. ``sinks`` are numbers whose exponentials are added to the sum of the softmax.
    """
    lines = [f"scores = cast({scores}, 'float32') * {scale!r}"]
    lines += [f"scores = {softcap!r} * np.tanh(scores * {1 / softcap!r})"] if softcap else []
    lines += [f"seen = {seen}", f"scores = np.where({mask}, scores, -1e30)"]
    lines += [f"begun = {begun}", "scores = np.where(begun, scores, -1e30)"] if begun else []
    lines += ["top = scores.max(axis=-1, keepdims=True)"]
    lines += [f"sink = cast({sinks}, 'float32')", "top = np.maximum(top, sink)"] if sinks else []
    lines += ["p = np.exp(scores - top)", "total = p.sum(axis=-1, keepdims=True)"]
    lines += ["total = total + np.exp(sink - top)"] if sinks else []
    return "\n".join([*lines, f"return cast(p / total, '{dtype}') @ {values}"])


def _causal(length: int) -> str:
    """Return the source text of a causal mask, which is True for a query's own token and all earlier tokens."""
    return f"np.arange({length})[:, None] >= np.arange({length})[None, :]"


def _cached(length: int) -> str:
    """Return the source text of a mask that is True for the cached tokens that belong to a sequence; ``lengths`` has
    the number of them for each sequence.
    """
    return f"np.arange({length})[None, :] < lengths[:, None]"
