"""Read the shape of a decoder-only transformer from a ``config.json`` of Hugging Face.

Every setting of a config that changes the work of a step is either read or refused with an error. A table for a
different model would be worse than no table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from acceld.errors import UsageError, no_file

FORM = "give the model's config.json, as Hugging Face has it"
"""Hint in the error for a file that is not a config.json."""

Activation = Literal["silu", "gelu_tanh", "clamped_silu"]
"""Activation of the gate product in a gated feed-forward layer.

``clamped_silu`` is the activation of gpt-oss: the gate and up products are clamped, and 1 is added to the up product.
"""
_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True, slots=True)
class Family:
    """Hold the facts of a model that follow from its ``model_type`` alone.

    ``defaults`` are the defaults of Hugging Face for keys that a config file leaves out.
    """

    experts: str = ""
    """Config key that has the number of experts; empty for models without experts."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    head_norms: bool = False
    gemma: bool = False
    """True if norms multiply by 1 + g, and the config key ``hidden_activation`` names the activation."""
    post_norms: bool = False
    """True if the results of attention and of the feed-forward layer are normed before the residual is added."""
    qkv_bias: bool = False
    """True if the products of queries, keys and values have a bias, whatever ``attention_bias`` says."""
    period: int = 0
    """Number of layers of which the last has no attention window and all others do.

    It is used only if the config does not list its layers. 0 means that there is no such period.
    """
    oss: bool = False
    """True for gpt-oss, which has an attention sink for each head, biases of experts, and a clamped activation."""


_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "query_pre_attn_scalar": 256}
_GEMMA3 = {**_GEMMA, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096}
FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(defaults={"sliding_window": 4096, "num_key_value_heads": 8}),
    "mixtral": Family(experts="num_local_experts", defaults={"num_key_value_heads": 8, "norm_topk_prob": True}),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(head_norms=True, defaults={"head_dim": 128}),
    "qwen3_moe": Family(experts="num_experts", head_norms=True),
    "gemma2": Family(
        defaults={**_GEMMA, "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        gemma=True,
        post_norms=True,
        period=2,
    ),
    "gemma3_text": Family(defaults=_GEMMA3, gemma=True, post_norms=True, head_norms=True, period=6),
    "gpt_oss": Family(
        experts="num_local_experts",
        defaults={"head_dim": 64, "sliding_window": 128, "norm_topk_prob": True, "attention_bias": True},
        period=2,
        oss=True,
    ),
    "deepseek_v3": Family(experts="n_routed_experts"),
    "kimi_k2": Family(experts="n_routed_experts"),
}
"""Facts of models, by the value of ``model_type`` in a config. Regions can be made for these values."""
_TEXT = {"gemma3": "gemma3_text", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}
"""Values of ``model_type`` whose text model is a model of another value, with that value."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Hold the sizes of multi-head latent attention.

    The keys and values of all heads of a token are computed from one short row, which is the token's latent.
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
    """Hold the sizes of experts that are divided into groups.

    Each token uses the best experts of the best groups, and the shared experts.
    """

    groups: int
    active_groups: int
    shared: int
    """Width of all shared experts together. Every token uses these experts."""
    scale: float
    """Factor by which the weights of the chosen experts are multiplied."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold the sizes and forms of the layers of a decoder-only transformer, or of one of its tensor-parallel parts."""

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
    dense_layers: int = 0
    """Number of layers without experts in a model with experts."""
    dense: int = 0
    """Width of the gated feed-forward layer in layers without experts, for a model with experts."""
    window: int = 0
    """Number of tokens that a token attends to in layers with a window. The token itself is counted."""
    windowed_layers: int = 0
    head_norms: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    layer_bias: bool = False
    """True if the products of the feed-forward layer have biases. With experts, the router's product has a bias, too."""
    sinks: bool = False
    """True if attention has sinks: for each head, a number whose exponential is added to the sum of the softmax."""
    activation: Activation = "silu"
    limit: float = 7.0
    """Bound to which the activation ``clamped_silu`` clamps its products."""
    shifted_norms: bool = False
    """True if norms multiply by 1 + g instead of g."""
    post_norms: bool = False
    scale: float = 0.0
    """Factor by which attention scores are multiplied; 0 for one over the square root of a head's width."""
    softcap: float = 0.0
    """Soft cap of attention scores, which a tanh keeps below this bound; 0 for no bound."""
    logits_softcap: float = 0.0
    renormalized: bool = True
    """True if the weights of the chosen experts add up to 1."""
    unread: tuple[str, ...] = ()
    """Facts of the config that the shape leaves out, as messages for the user."""


def read_config(path: Path, parts: int = 1) -> Shape:
    """Return the shape of the model in a config.json of Hugging Face, for one of ``parts`` tensor-parallel parts.

    Raise UsageError if the file can not be read, if its ``model_type`` is unknown, or if regions can not express a
    setting.
    """
    if not path.is_file():
        raise no_file(path, hint=FORM)
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no config.json: {error}", hint=FORM) from error
    return _Reading(path, raw if isinstance(raw, dict) else {}, parts).shape()


class _Reading:
    """Read a config for one of ``parts`` tensor-parallel parts. The methods raise UsageError for a wrong value."""

    def __init__(self, path: Path, raw: Mapping[str, Any], parts: int) -> None:
        self.path = path
        self.parts = parts
        self.unread: list[str] = []
        if isinstance(raw.get("text_config"), dict):
            common = ("model_type", "torch_dtype", "dtype", "quantization_config")
            outer, text = raw, {key: one for key, one in raw["text_config"].items() if one is not None}
            raw = {key: outer[key] for key in common if key in outer} | text
            self.unread.append(f"{outer.get('model_type')!r} is counted without its other parts, such as vision")
        kind = raw.get("model_type")
        self.kind = _TEXT.get(kind, kind) if isinstance(kind, str) else ""
        if self.kind not in FAMILIES:
            raise self._error(
                f"acceld has no regions for model_type {kind!r}",
                f"It has regions for {', '.join(FAMILIES)}. A PyTorch class needs no config: acceld model FILE.py:CLASS.",
            )
        self.family = FAMILIES[self.kind]
        given = {key: value for key, value in raw.items() if value is not None or key in _EMPTY_MEANS}
        self.raw = {**self.family.defaults, **given}

    def _error(self, message: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.path}: {message}", hint=hint)

    # values

    def whole(self, key: str, default: int | None = None) -> int:
        """Return the value of a config key that must be a whole number of 1 or more."""
        value = self.raw.get(key, default)
        if type(value) is not int or value < 1:
            raise self._error(f"{key} must be a whole number of 1 or more, not {value!r}")
        return value

    def number(self, key: str, default: float, *, least: float = 0.0) -> float:
        """Return the value of a config key that must be a number above ``least``."""
        value = self.raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < math.inf:
            raise self._error(f"{key} must be a number above {least:g}, not {value!r}")
        return float(value)

    def truth(self, key: str, default: bool = False) -> bool:
        """Return the value of a config key that must be true or false."""
        value = self.raw.get(key, default)
        if type(value) is not bool:
            raise self._error(f"{key} must be true or false, not {value!r}")
        return value

    def divided(self, key: str) -> int:
        """Return the value of a config key, a whole number, divided by the number of tensor-parallel parts."""
        number = self.whole(key)
        if number % self.parts:
            raise self._error(
                f"{key} {number} can not be divided into {self.parts} equal parts", "Choose another --tp."
            )
        return number // self.parts

    # parts of a shape

    def shape(self) -> Shape:
        """Return the shape of the model that the config describes."""
        raw, family, parts = self.raw, self.family, self.parts
        deep = self.kind in ("deepseek_v3", "kimi_k2")
        heads, hidden, layers = (self.whole(key) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
        kv_heads = self.whole("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self._error(f"{heads} heads of queries can not share {kv_heads} heads of keys equally")
        if "head_dim" not in raw and not deep and hidden % heads:
            raise self._error(f"hidden_size {hidden} can not be divided into {heads} heads", "Give head_dim.")
        head = self.whole("head_dim", max(1, hidden // heads))
        if head % 2 and not deep:
            raise self._error(f"head_dim {head} is odd, so its two halves can not be rotated")
        own_heads = self.divided("num_attention_heads")
        if kv_heads % parts and parts % kv_heads:
            raise self._error(f"{kv_heads} heads of keys do not fit {parts} equal parts", "Choose another --tp.")
        # Experts of Qwen and DeepSeek have a width of their own. Experts of Mixtral and gpt-oss have intermediate_size.
        narrow = family.experts in ("num_experts", "n_routed_experts")
        experts = self._experts()
        active = self.whole("num_experts_per_tok") if experts else 0
        if active > experts:
            raise self._error(f"num_experts_per_tok {active} is more than the {experts} experts")
        dense_layers = self._dense_layers(layers, deep) if narrow else 0
        window, windowed = (0, 0) if deep else self._windows(layers)
        bias = self.truth("attention_bias")
        if bias and deep:
            raise self._error("attention_bias true is not supported for latent attention")
        self._quantization()
        return Shape(
            self.kind,
            hidden,
            layers,
            own_heads,
            max(1, kv_heads // parts),
            head,
            self.divided("moe_intermediate_size" if narrow else "intermediate_size"),
            math.ceil(self.whole("vocab_size") / parts),
            self.number("rms_norm_eps", 1e-6),
            self._dtype(),
            experts,
            active,
            self._latent() if deep else None,
            self._grouped(experts, active) if deep else None,
            dense_layers,
            self.divided("intermediate_size") if dense_layers else 0,
            window,
            windowed,
            family.head_norms,
            family.qkv_bias or bias,
            bias,
            family.oss or self.truth("mlp_bias"),
            family.oss,
            self._activation(),
            self.number("swiglu_limit", 7.0),
            family.gemma,
            family.post_norms,
            self.number("query_pre_attn_scalar", head) ** -0.5,
            self._cap("attn_logit_softcapping"),
            self._cap("final_logit_softcapping"),
            self.truth("norm_topk_prob"),
            tuple(self.unread),
        )

    def _experts(self) -> int:
        key = self.family.experts
        if key == "num_experts" and key not in self.raw and "num_local_experts" in self.raw:
            key = "num_local_experts"  # the name since transformers 5
        return self.whole(key) if key else 0

    def _cap(self, key: str) -> float:
        return 0.0 if self.raw.get(key) is None else self.number(key, 0.0)

    def _activation(self) -> Activation:
        key = "hidden_activation" if self.family.gemma else "hidden_act"
        named = self.raw.get(key, "silu")
        if named not in _ACTIVATIONS:
            raise self._error(
                f"{key} {named!r} is not supported", f"The supported values are {', '.join(_ACTIVATIONS)}."
            )
        return "clamped_silu" if self.family.oss else _ACTIVATIONS[named]

    def _dtype(self) -> str:
        dtype = self.raw.get("dtype", self.raw.get("torch_dtype", "bfloat16"))
        if dtype not in ("bfloat16", "float16", "float32"):
            raise self._error(f"torch_dtype {dtype!r} is not supported", "Use bfloat16, float16 or float32.")
        return str(dtype)

    def _quantization(self) -> None:
        """Note that a model has quantized weights, because regions count weights in the config's dtype."""
        found = self.raw.get("quantization_config")
        if found:
            method = found.get("quant_method", "quantized") if isinstance(found, dict) else found
            self.unread.append(
                f"weights are counted as {self._dtype()}: the {method} of quantization_config is left out, so least times "
                "bound by bytes are too great"
            )

    def _windows(self, layers: int) -> tuple[int, int]:
        """Return (width of the attention window, number of layers with a window); zeros if no layer has a window."""
        raw, known = self.raw, ("full_attention", "sliding_attention")
        listed = raw.get("layer_types")
        if listed is not None:
            if not isinstance(listed, list) or len(listed) != layers:
                raise self._error(f"layer_types must name each of the {layers} layers")
            if unknown := [one for one in listed if one not in known]:
                raise self._error(f"layer_types: {unknown[0]!r} is not supported", f"Known are {' and '.join(known)}.")
            count = listed.count("sliding_attention")
        elif raw.get("sliding_window") is None:
            count = 0
        elif self.kind.startswith("qwen"):
            first = 0 if self.kind == "qwen3_moe" else raw.get("max_window_layers", 28)
            if type(first) is not int or first < 0:
                raise self._error(f"max_window_layers must be a number of layers, not {first!r}")
            count = max(0, layers - first) if self.truth("use_sliding_window") else 0
        elif self.family.period:
            period = self.whole("sliding_window_pattern", self.family.period)
            count = layers - layers // period
        else:  # Llama has no windows, whatever its config says
            count = 0 if self.kind == "llama" else layers
        return (self.whole("sliding_window"), count) if count else (0, 0)

    def _dense_layers(self, layers: int, deep: bool) -> int:
        """Return the number of layers without experts in a model with experts. ``deep`` is True for DeepSeek's form."""
        if not deep:
            step, listed = self.whole("decoder_sparse_step", 1), self.raw.get("mlp_only_layers") or []
            if not isinstance(listed, list) or not all(type(one) is int for one in listed):
                raise self._error(f"mlp_only_layers must be a list of numbers of layers, not {listed!r}")
            count = sum(at in listed or (at + 1) % step != 0 for at in range(layers))
            if count == layers:
                raise self._error("no layer has experts", "Use model_type qwen3 for such a model.")
            return count
        count = self.raw.get("first_k_dense_replace", 0)
        if type(count) is not int or not 0 <= count < layers:
            raise self._error(f"first_k_dense_replace must be a number of layers, not {count!r}")
        return int(count)

    def _latent(self) -> Latent:
        if "q_lora_rank" not in self.raw:
            raise self._error("q_lora_rank is missing: queries without a latent are not supported")
        nope, rope = self.whole("qk_nope_head_dim"), self.whole("qk_rope_head_dim")
        if rope % 2:
            raise self._error(f"qk_rope_head_dim {rope} is odd, so its pairs can not be rotated")
        return Latent(
            self.whole("q_lora_rank"),
            self.whole("kv_lora_rank"),
            nope,
            rope,
            self.whole("v_head_dim"),
            self._scale(nope + rope),
        )

    def _scale(self, head: int) -> float:
        """Return the factor by which attention scores are multiplied, for heads of ``head`` elements.

        The factor is greater for a model whose context was extended.
        """
        key = "rope_scaling" if "rope_scaling" in self.raw else "rope_parameters"  # the name since transformers 5
        scaling = self.raw.get(key) or {}
        if not isinstance(scaling, dict):
            raise self._error(f"{key} must be a JSON object, not {scaling!r}")
        factor, by = scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (factor, by)):
            raise self._error(f"factor and mscale_all_dim of {key} must be numbers")
        more = 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0
        return float(head**-0.5 * more * more)

    def _grouped(self, experts: int, active: int) -> Grouped:
        check = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "moe_layer_freq": 1}
        for key, known in check.items():
            if self.raw.get(key, known) != known:
                raise self._error(f"{key} {self.raw[key]!r} is not supported", f"The supported value is {known!r}.")
        groups, chosen = self.whole("n_group", 1), self.whole("topk_group", 1)
        if experts % groups:
            raise self._error(f"n_routed_experts can not be divided into {groups} equal groups")
        if chosen > groups:
            raise self._error(f"topk_group {chosen} is more than the {groups} groups")
        if active > experts // groups * chosen:
            raise self._error(f"num_experts_per_tok {active} is more than the experts of {chosen} groups")
        return Grouped(
            groups,
            chosen,
            self.divided("moe_intermediate_size") * self.whole("n_shared_experts", 1),
            self.number("routed_scaling_factor", 1.0),
        )


_EMPTY_MEANS = frozenset({"sliding_window", "attn_logit_softcapping", "final_logit_softcapping"})
"""Config keys for which null means that the model lacks the feature.

For all other keys, null means the default of Hugging Face.
"""
