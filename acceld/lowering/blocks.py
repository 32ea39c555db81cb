"""Describe one step of a transformer as regions, each with a numpy reference, its shapes, and its number of
runs.

All facts come from a ``config.json`` of Hugging Face; weights and PyTorch are not needed. A region ends where
the result of a matrix product has to go through HBM anyway. Equal regions are described once, with a count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.errors import UsageError, no_file

FORM = "give the model's config.json, as Hugging Face has it"
"""Hint of the error for a file that is not a config.json."""
KINDS = ("llama", "qwen3", "qwen3_moe", "deepseek_v3")
"""Values of ``model_type`` for which regions can be made. Layers of Mistral and Qwen2 are different."""

_PRELUDE = '''"""{title}"""

import ml_dtypes  # noqa: F401  (numpy then knows bfloat16)
import numpy as np


def cast(x, dtype):
    """Return x in another type. float64 stays: then the reference is called to tell rounding from errors."""
    return x if x.dtype == np.float64 else x.astype(dtype)


'''
_NORM = '''def normalized(x, g):
    """Return x over the root of its mean square, times g; computed in float32."""
    wide = cast(x, "float32")
    return cast(wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + {eps}), "{dtype}") * g


'''
_ROTATED = '''def rotated(x, cos, sin):
    """Return heads turned by their positions: each half with the other."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None, :half], sin[:, None, :half]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


'''


_TURNED = '''def turned(x, cos, sin):
    """Return values turned by their positions: each even one with the odd one after it."""
    pairs = x.reshape(x.shape[:-1] + (x.shape[-1] // 2, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


'''
_CHOSEN = '''def chosen(scores, count):
    """Return the places of the greatest scores, greatest first. Scores are above -1."""
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
    """An argument of a region. ``high`` is the greatest number in an array of positions."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int | None = None
    spread: float = 1.0
    """Standard deviation of drawn values. Weights with more columns get a smaller one, so that results stay near 1."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a step that one kernel computes: its reference as text, its arguments, and how often a step runs it."""

    name: str
    text: str
    operands: tuple[Operand, ...]
    count: int


@dataclass(frozen=True, slots=True)
class StepSize:
    """Size of a step: ``batch`` sequences of ``length`` tokens.

    With ``decode``, a step computes one new token of each sequence.
    """

    batch: int
    length: int
    decode: bool

    @property
    def tokens(self) -> int:
        """Return how many tokens go through the layers in a step."""
        return self.batch if self.decode else self.batch * self.length


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of latent attention, in which the keys and values of all heads are computed from one short row for
    each token.

    This row is the token's latent.
    """

    q_rank: int
    kv_rank: int
    nope: int
    """Elements of a head's query and key to which no position is applied."""
    rope: int
    """Elements of a head's query and key to which a position is applied. All heads share these elements of the key."""
    value: int
    scale: float
    """Factor by which attention scores are multiplied."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """Sizes of experts in groups. Each token uses the best experts of the best groups, and the shared experts."""

    groups: int
    active_groups: int
    shared: int
    """Width of all shared experts together, which every token uses."""
    scale: float
    """Factor by which the weights of the chosen experts are multiplied."""
    dense_layers: int
    """Number of layers without experts, at the beginning."""
    dense: int
    """Width of the gated feed-forward layer in the layers without experts."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a decoder-only transformer, or of one of its tensor-parallel parts."""

    kind: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocabulary: int
    eps: float
    dtype: str
    experts: int = 0
    active: int = 0
    latent: Latent | None = None
    grouped: Grouped | None = None


def read_config(path: Path, parts: int = 1) -> Shape:
    """Return the shape of the model in a config.json of Hugging Face, for one of ``parts`` equal parts.

    Raise UsageError if the file can not be read, or if its kind of model is unknown.
    """
    if not path.is_file():
        raise no_file(path, hint=FORM)
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no config.json: {error}", hint=FORM) from error
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if kind not in KINDS:
        raise UsageError(
            f"{path}: acceld has no regions for model_type {kind!r}", hint=f"It has regions for {', '.join(KINDS)}."
        )
    deep = kind == "deepseek_v3"
    moe = kind == "qwen3_moe" or deep

    def whole(key: str, default: int | None = None) -> int:
        value = default if raw.get(key) is None else raw[key]
        if type(value) is not int or value < 1:
            raise UsageError(f"{path}: {key} must be a whole number of 1 or more, not {value!r}")
        return value

    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    kv_heads = whole("num_key_value_heads", heads)
    intermediate = whole("moe_intermediate_size" if moe else "intermediate_size")
    for what, number in (("num_attention_heads", heads), ("the intermediate size", intermediate)):
        if number % parts:
            raise UsageError(
                f"{path}: {what} {number} can not be divided into {parts} equal parts", hint="Choose another --tp."
            )
    if kv_heads % parts and parts % kv_heads:
        raise UsageError(
            f"{path}: {kv_heads} heads of keys do not fit {parts} equal parts", hint="Choose another --tp."
        )
    eps = raw.get("rms_norm_eps", 1e-6)
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise UsageError(f"{path}: rms_norm_eps must be a number, not {eps!r}")
    dtype = raw.get("torch_dtype", raw.get("dtype", "bfloat16"))
    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"{path}: torch_dtype {dtype!r} is not supported", hint="Use bfloat16, float16 or float32.")
    if moe and (raw.get("mlp_only_layers") or raw.get("decoder_sparse_step", 1) != 1):
        raise UsageError(
            f"{path}: layers of two kinds are not supported",
            hint="Give a model in which all layers have experts, or none has.",
        )
    if deep:
        check = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "moe_layer_freq": 1}
        for key, known in check.items():
            if raw.get(key, known) != known:
                raise UsageError(
                    f"{path}: {key} {raw[key]!r} is not supported", hint=f"The supported value is {known!r}."
                )
        if whole("n_routed_experts") % whole("n_group", 1):
            raise UsageError(f"{path}: n_routed_experts can not be divided into {raw['n_group']} equal groups")
        for key in ("intermediate_size", "moe_intermediate_size"):
            if whole(key) % parts:
                raise UsageError(
                    f"{path}: {key} {whole(key)} can not be divided into {parts} equal parts",
                    hint="Choose another --tp.",
                )
        nope, rope = whole("qk_nope_head_dim"), whole("qk_rope_head_dim")
        latent = Latent(
            whole("q_lora_rank"), whole("kv_lora_rank"), nope, rope, whole("v_head_dim"), _scale(path, raw, nope + rope)
        )
        dense_layers = raw.get("first_k_dense_replace", 0)
        if type(dense_layers) is not int or not 0 <= dense_layers < whole("num_hidden_layers"):
            raise UsageError(f"{path}: first_k_dense_replace must be a number of layers, not {dense_layers!r}")
        routed = raw.get("routed_scaling_factor", 1.0)
        if isinstance(routed, bool) or not isinstance(routed, int | float):
            raise UsageError(f"{path}: routed_scaling_factor must be a number, not {routed!r}")
        grouped = Grouped(
            whole("n_group", 1),
            whole("topk_group", 1),
            intermediate // parts * whole("n_shared_experts", 1),
            float(routed),
            dense_layers,
            whole("intermediate_size") // parts,
        )
    return Shape(
        kind,
        hidden,
        whole("num_hidden_layers"),
        heads // parts,
        max(1, kv_heads // parts),
        whole("head_dim", hidden // heads),
        intermediate // parts,
        math.ceil(whole("vocab_size", 1) / parts),
        float(eps),
        dtype,
        whole("n_routed_experts" if deep else "num_experts") if moe else 0,
        whole("num_experts_per_tok") if moe else 0,
        latent if deep else None,
        grouped if deep else None,
    )


def _scale(path: Path, raw: Mapping[str, Any], head: int) -> float:
    """Return the factor for attention scores. It is greater for a model whose context was extended."""
    scaling = raw.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise UsageError(f"{path}: rope_scaling must be a table, not {scaling!r}")
    factor, by = scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (factor, by)):
        raise UsageError(f"{path}: factor and mscale_all_dim of rope_scaling must be numbers")
    more = 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0
    return float(head**-0.5 * more * more)


def regions_of(shape: Shape, step: StepSize) -> list[Region]:
    """Divide a shape into regions, each of the size of one step, and return them in the order in which they run."""
    made = _Regions(shape, step)
    if shape.latent is not None and shape.grouped is not None:
        return _latent_regions(made, shape.latent, shape.grouped)
    found = [made.projections(), made.positions(), made.decoding() if step.decode else made.attention(), made.output()]
    found += [made.router(), made.expert(), made.combined()] if shape.experts else [made.gated(), made.down()]
    return [*found, *([made.logits()] if shape.vocabulary > 1 else [])]


def _latent_regions(made: _Regions, latent: Latent, grouped: Grouped) -> list[Region]:
    """Return the regions of a step with latent attention and experts in groups."""
    found = [made.latents(latent), made.latent_queries(latent), made.latent_positions(latent)]
    if made.step.decode:
        found += [made.absorbed(latent), made.latent_decoding(latent), made.latent_values(latent)]
    else:
        found += [made.latent_keys(latent), made.latent_attention(latent)]
    found.append(made.output(latent.value))
    if grouped.dense_layers:
        found += [made.gated(grouped.dense, grouped.dense_layers), made.down(grouped.dense, grouped.dense_layers)]
    routed = made.shape.layers - grouped.dense_layers
    found += [made.grouped_router(grouped, routed), made.expert(routed)]
    found += [made.shared(grouped, routed), made.shared_down(grouped, routed), made.combined(routed, shared=True)]
    return [*found, *([made.logits()] if made.shape.vocabulary > 1 else [])]


class _Regions:
    """Make the regions of a step. Each method makes one."""

    def __init__(self, shape: Shape, step: StepSize) -> None:
        self.shape = shape
        self.step = step

    def _region(self, name: str, title: str, helpers: str, body: str, count: int, *operands: Operand) -> Region:
        """Return a region with the text of its reference.

        ``title`` is the docstring of ``forward``, ``body`` its statements, and ``helpers`` are functions that
        it calls.
        """
        values: Mapping[str, Any] = {"eps": self.shape.eps, "dtype": self.shape.dtype}
        names = ", ".join(one.name for one in operands)
        helpers = helpers.replace("{eps}", repr(values["eps"])).replace("{dtype}", values["dtype"])
        forward = f'def forward({names}):\n    """{title}"""\n' + "".join(f"    {line}\n" for line in body.splitlines())
        return Region(name, _PRELUDE.format(title=title) + helpers + _drawn(operands) + forward, operands, count)

    def _weights(self, name: str, rows: int, columns: int) -> Operand:
        """Return an argument that is a matrix of weights."""
        return Operand(name, (rows, columns), self.shape.dtype, spread=columns**-0.5)

    def _values(self, name: str, *shape: int) -> Operand:
        """Return an argument that is an array of activations."""
        return Operand(name, shape, self.shape.dtype)

    def projections(self) -> Region:
        """Return the region of the norm before attention and of the products that give queries, keys and values."""
        s = self.shape
        return self._region(
            "norm_qkv",
            "Root-mean-square norm, then queries, keys and values.",
            _NORM,
            "h = normalized(x, g)\nreturn h @ wq.T, h @ wk.T, h @ wv.T",
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wq", s.heads * s.head, s.hidden),
            self._weights("wk", s.kv_heads * s.head, s.hidden),
            self._weights("wv", s.kv_heads * s.head, s.hidden),
        )

    def positions(self) -> Region:
        """Return the region of rotary positions of queries and keys; in Qwen3 with a norm of each head."""
        s, tokens = self.shape, self.step.tokens
        operands = [
            self._values("q", tokens, s.heads, s.head),
            self._values("k", tokens, s.kv_heads, s.head),
            self._values("cos", tokens, s.head),
            self._values("sin", tokens, s.head),
        ]
        normed = s.kind != "llama"
        body = "q, k = normalized(q, gq), normalized(k, gk)\n" if normed else ""
        title = "Norm of each head, then rotary positions." if normed else "Rotary positions of queries and keys."
        operands += [self._values("gq", s.head), self._values("gk", s.head)] if normed else []
        return self._region(
            "rope",
            title,
            (_NORM if normed else "") + _ROTATED,
            body + "return rotated(q, cos, sin), rotated(k, cos, sin)",
            s.layers,
            *operands,
        )

    def attention(self) -> Region:
        """Return the region of causal attention over whole sequences. Several query heads may share one key head."""
        s, batch, length = self.shape, self.step.batch, self.step.length
        group = s.heads // s.kv_heads
        scores, seen = "q @ np.swapaxes(k, -1, -2)[:, :, None]", _causal(length)
        body = _attended(scores, s.head**-0.5, seen, "seen", s.dtype, "v[:, :, None]")
        return self._region(
            "attention",
            "Causal attention: scores, mask, softmax, weighted values.",
            "",
            body,
            s.layers,
            self._values("q", batch, s.kv_heads, group, length, s.head),
            self._values("k", batch, s.kv_heads, length, s.head),
            self._values("v", batch, s.kv_heads, length, s.head),
        )

    def decoding(self) -> Region:
        """Return the region of attention in which one new token of each sequence reads the cached keys and values."""
        s, batch, length = self.shape, self.step.batch, self.step.length
        group = s.heads // s.kv_heads
        scores, seen = "q @ np.swapaxes(k, -1, -2)", _cached(length)
        body = _attended(scores, s.head**-0.5, seen, "seen[:, None, None, :]", s.dtype, "v")
        return self._region(
            "attention_decode",
            "Attention of one token over the cache, up to each sequence's length.",
            "",
            body,
            s.layers,
            self._values("q", batch, s.kv_heads, group, s.head),
            self._values("k", batch, s.kv_heads, length, s.head),
            self._values("v", batch, s.kv_heads, length, s.head),
            Operand("lengths", (batch,), "int32", high=length),
        )

    def output(self, value: int = 0) -> Region:
        """Return the region of attention's output product. The residual is added to the result of the product.

        ``value`` is the width of a head's values; 0 means the width of its keys.
        """
        s, width = self.shape, value or self.shape.head
        return self._region(
            "attention_output",
            "Output product of the attention, and the residual.",
            "",
            "return x + a @ wo.T",
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("a", self.step.tokens, s.heads * width),
            self._weights("wo", s.hidden, s.heads * width),
        )

    def gated(self, width: int = 0, layers: int = 0) -> Region:
        """Return the region of the norm before the feed-forward layer and of its gate and up products.

        ``width`` and ``layers`` are the width and the number of gated layers; 0 means the model's own.
        """
        s = self.shape
        return self._region(
            "norm_gate_up",
            "Root-mean-square norm, then SiLU of the gate product times the up product.",
            _NORM,
            "h = normalized(x, g)\na = h @ wg.T\nreturn a / (1.0 + np.exp(-a)) * (h @ wu.T)",
            layers or s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wg", width or s.intermediate, s.hidden),
            self._weights("wu", width or s.intermediate, s.hidden),
        )

    def down(self, width: int = 0, layers: int = 0) -> Region:
        """Return the region of the feed-forward layer's down product. The residual is added to the result of
        the product.

        ``width`` and ``layers`` are the width and the number of gated layers; 0 means the model's own.
        """
        s = self.shape
        return self._region(
            "down",
            "Down product, and the residual.",
            "",
            "return x + h @ wd.T",
            layers or s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("h", self.step.tokens, width or s.intermediate),
            self._weights("wd", s.hidden, width or s.intermediate),
        )

    def router(self) -> Region:
        """Return the region of the norm before the experts and of the choice of experts for each token."""
        s = self.shape
        body = (
            "h = normalized(x, g)\n"
            "scores = cast(h @ wr.T, 'float32')\n"
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
            "return h, np.stack(chosen, axis=-1), w / w.sum(axis=-1, keepdims=True)"
        )
        return self._region(
            "router",
            f"Root-mean-square norm, then the {s.active} likeliest of {s.experts} experts and their weights.",
            _NORM,
            body,
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wr", s.experts, s.hidden),
        )

    def expert(self, layers: int = 0) -> Region:
        """Return the region of one expert. It has as many tokens as each expert gets if all are chosen equally
        often.
        """
        s, chosen = self.shape, self.step.tokens * self.shape.active
        # C independent choices among E experts reach E (1 - (1 - 1/E)^C) of them. With few tokens most experts are not
        # used.
        reached = max(1, min(s.experts, round(s.experts * (1 - (1 - 1 / s.experts) ** chosen))))
        rows = max(1, math.ceil(chosen / reached))
        return self._region(
            "expert",
            "One expert: its tokens are gathered, then gate, up and down products, times their weights.",
            "",
            "h = x[ids]\na = h @ wg.T\nb = a / (1.0 + np.exp(-a)) * (h @ wu.T)\nreturn b @ wd.T * p[:, None]",
            (layers or s.layers) * reached,
            self._values("x", self.step.tokens, s.hidden),
            Operand("ids", (rows,), "int32", high=self.step.tokens - 1),
            self._values("p", rows),
            self._weights("wg", s.intermediate, s.hidden),
            self._weights("wu", s.intermediate, s.hidden),
            self._weights("wd", s.hidden, s.intermediate),
        )

    def combined(self, layers: int = 0, *, shared: bool = False) -> Region:
        """Return the region that adds the results of each token's experts to the residual.

        ``shared`` also adds the result of the shared experts.
        """
        s, tokens = self.shape, self.step.tokens
        return self._region(
            "combine",
            "Sum of each token's experts, and the residual.",
            "",
            f"return x + {'z + ' if shared else ''}y[places].sum(axis=1)",
            layers or s.layers,
            self._values("x", tokens, s.hidden),
            *([self._values("z", tokens, s.hidden)] if shared else []),
            self._values("y", tokens * s.active, s.hidden),
            Operand("places", (tokens, s.active), "int32", high=tokens * s.active - 1),
        )

    # latent attention, and experts in groups

    def latents(self, latent: Latent) -> Region:
        """Return the region of the norm before attention and of the products that give latents.

        One latent is for queries, the other for keys and values.
        """
        s, rank = self.shape, latent.kv_rank
        return self._region(
            "norm_latents",
            "Root-mean-square norm, then the normed latents of queries and of keys and values, and the key's position part.",
            _NORM,
            f"h = normalized(x, g)\nc = h @ wkv.T\n"
            f"return normalized(h @ wq.T, gq), normalized(c[:, :{rank}], gkv), c[:, {rank}:]",
            s.layers,
            self._values("x", self.step.tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wq", latent.q_rank, s.hidden),
            self._values("gq", latent.q_rank),
            self._weights("wkv", rank + latent.rope, s.hidden),
            self._values("gkv", rank),
        )

    def latent_queries(self, latent: Latent) -> Region:
        """Return the region of the product that makes the queries of all heads from the latent of queries."""
        rows = self.shape.heads * (latent.nope + latent.rope)
        return self._product("queries", "Queries of all heads from their latent.", latent.q_rank, rows)

    def latent_keys(self, latent: Latent) -> Region:
        """Return the region of the product that makes the keys and values of all heads from their common latent."""
        rows = self.shape.heads * (latent.nope + latent.value)
        return self._product("keys_values", "Keys and values of all heads from their latent.", latent.kv_rank, rows)

    def _product(self, name: str, title: str, columns: int, rows: int) -> Region:
        """Return a region that multiplies rows of ``columns`` elements by weights of ``rows`` x ``columns``."""
        operands = (self._values("c", self.step.tokens, columns), self._weights("w", rows, columns))
        return self._region(name, title, "", "return c @ w.T", self.shape.layers, *operands)

    def latent_positions(self, latent: Latent) -> Region:
        """Return the region of rotary positions, for those parts of queries and of the shared key that have
        positions.
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
        """Return the region of causal attention over whole sequences.

        A score is the sum of the scores of the parts with and without positions.
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
        """Return the region that multiplies queries by the weights that make keys. With it, keys need not be cached."""
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
        """Return the region of attention in which one new token reads the cached latents. All heads share them."""
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
        """Return the region that makes each head's values from its weighted sum of latents."""
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

    def grouped_router(self, grouped: Grouped, layers: int) -> Region:
        """Return the region of the norm before the experts and of the choice of experts.

        For each token, groups are chosen first, and then experts of these groups.
        """
        s, tokens = self.shape, self.step.tokens
        of = s.experts // grouped.groups
        body = [
            "h = normalized(x, g)",
            "scores = 1.0 / (1.0 + np.exp(-cast(h @ wr.T, 'float32')))",
            "ranked = scores + bias",
        ]
        if grouped.groups > grouped.active_groups:
            body += [
                f"parts = ranked.reshape(({tokens}, {grouped.groups}, {of}))",
                "first = parts.max(axis=-1)",
                f"second = np.where(np.arange({of}) == parts.argmax(axis=-1)[..., None], -1.0, parts).max(axis=-1)",
                f"groups = chosen(first + second, {grouped.active_groups})",
                f"kept = (np.arange({grouped.groups})[:, None] == groups[:, None, :]).any(axis=-1)",
                f"ranked = np.where(kept[:, :, None], parts, -1.0).reshape(({tokens}, {s.experts}))",
            ]
        body += [
            f"ids = chosen(ranked, {s.active})",
            "w = np.take_along_axis(scores, ids, axis=-1)",
            f"return h, ids, w / w.sum(axis=-1, keepdims=True) * {grouped.scale!r}",
        ]
        return self._region(
            "router",
            f"Root-mean-square norm, then {s.active} of {s.experts} experts in the best groups, and their weights.",
            _NORM + _CHOSEN,
            "\n".join(body),
            layers,
            self._values("x", tokens, s.hidden),
            self._values("g", s.hidden),
            self._weights("wr", s.experts, s.hidden),
            Operand("bias", (s.experts,), "float32", spread=0.01),
        )

    def shared(self, grouped: Grouped, layers: int) -> Region:
        """Return the region of the gate and up products of the experts that every token uses."""
        s = self.shape
        return self._region(
            "shared_gate_up",
            "Experts that every token has: SiLU of the gate product times the up product.",
            "",
            "a = h @ wg.T\nreturn a / (1.0 + np.exp(-a)) * (h @ wu.T)",
            layers,
            self._values("h", self.step.tokens, s.hidden),
            self._weights("wg", grouped.shared, s.hidden),
            self._weights("wu", grouped.shared, s.hidden),
        )

    def shared_down(self, grouped: Grouped, layers: int) -> Region:
        """Return the region of the down product of the experts that every token uses."""
        s = self.shape
        return self._region(
            "shared_down",
            "Experts that every token has: down product.",
            "",
            "return h @ wd.T",
            layers,
            self._values("h", self.step.tokens, grouped.shared),
            self._weights("wd", s.hidden, grouped.shared),
        )

    def logits(self) -> Region:
        """Return the region of the last norm and of the product with the vocabulary, for the last token of each
        sequence.
        """
        s = self.shape
        return self._region(
            "logits",
            "Root-mean-square norm, then the product with the vocabulary.",
            _NORM,
            "return normalized(x, g) @ w.T",
            1,
            self._values("x", self.step.batch, s.hidden),
            self._values("g", s.hidden),
            self._weights("w", s.vocabulary, s.hidden),
        )


def _drawn(operands: tuple[Operand, ...]) -> str:
    """Return the text of a region's ``get_inputs``, which draws the arguments."""
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


def _attended(scores: str, scale: float, seen: str, mask: str, dtype: str, values: str) -> str:
    """Return statements that weight ``values`` by a softmax of scaled scores.

    ``seen`` is the name of the mask, and ``mask`` its text. Where the mask is False, the weight is 0.
    """
    return (
        f"scores = cast({scores}, 'float32') * {scale!r}\n"
        f"seen = {seen}\n"
        f"scores = np.where({mask}, scores, -1e30)\n"
        "p = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
        f"return cast(p / p.sum(axis=-1, keepdims=True), '{dtype}') @ {values}"
    )


def _causal(length: int) -> str:
    """Return the text of a mask that is True for the query's own token and all tokens before it."""
    return f"np.arange({length})[:, None] >= np.arange({length})[None, :]"


def _cached(length: int) -> str:
    """Return the text of a mask that is True for the tokens that a sequence has in the cache."""
    return f"np.arange({length})[None, :] < lengths[:, None]"
