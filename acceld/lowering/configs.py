"""Read the shape of a decoder-only transformer from a ``config.json`` of Hugging Face.

Every setting of a config that changes the work of a step is either read or refused with an error, because a table for a
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
"""Hint of the error for a file that is not a config.json."""

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_silu"]
"""Activation of the gate product in a gated feed-forward layer, or of the up product in a layer without a gate.

``gelu`` uses the error function, and ``gelu_tanh`` approximates it by a tanh. ``relu2`` is the square of ReLU.
``clamped_silu`` is the activation of gpt-oss: the gate and up products are clamped, and 1 is added to the up product.
"""
_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


@dataclass(frozen=True, slots=True)
class Family:
    """The facts about a model that follow from its ``model_type`` alone.

    ``defaults`` are the defaults of Hugging Face for keys that a config file leaves out.
    """

    experts: str = ""
    """Config key that has the number of experts; empty for models without experts."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    head_norms: bool = False
    gemma: bool = False
    """True if norms multiply by 1 + g, and the config key ``hidden_activation`` names the activation."""
    layer_norms: bool = False
    """True if norms subtract the mean (layer norm). Else they are root-mean-square norms."""
    norm_parameters: str = "gc"
    """Parameters of layer norms: a weight ``g`` and a bias ``c``, one of the two, or none (``""``)."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The usual names of config keys, by the names that this model's config has for them."""
    shifted: bool = False
    """True if norms multiply by 1 + g, as Nemotron's do."""
    eps: str = "rms_norm_eps"
    """Config key that has the number which norms add to the variance."""
    gated: bool = True
    """True if the feed-forward layer has a gate product beside its up product."""
    bias_keys: tuple[str, str] = ("attention_bias", "mlp_bias")
    """Config keys that give biases to the products of attention, and to those of the feed-forward layer."""
    unsupported: tuple[str, ...] = ()
    """Config keys that change a layer's work in a way which regions can not express, unless they are false or null."""
    post_norms: bool = False
    """True if the results of attention and of the feed-forward layer are normed before the residual is added."""
    qkv_bias: bool = False
    """True if the products of queries, keys and values have a bias, whatever ``attention_bias`` says."""
    period: int = 0
    """Number of layers in a period of the layers' windows: the last layer of a period has no attention window, all
    others have one.

    The period is used only if the config does not list its layers. 0 means that there is no period.
    """
    oss: bool = False
    """True for gpt-oss: each head has an attention sink, experts have biases, and the activation is clamped."""
    latent: bool = False
    """True if attention is multi-head latent attention."""
    scores: str = ""
    """Function that turns the experts' scores into weights, ``sigmoid`` or ``softmax``; empty for models without shared
    experts.
    """
    always_windowed: bool = False
    """True if each layer has an attention window whenever the config has the key ``sliding_window``."""
    output_bias: bool = True
    """True if ``attention_bias`` adds a bias to the output product of attention, too."""
    pre_norms: bool = True
    """True if the inputs of attention and of the feed-forward layer are normed."""
    whole_norms: bool = False
    """True if the queries of all heads are normed together, and so are the keys."""
    granite: bool = False
    """True for Granite, whose config has factors for attention scores, residuals and logits."""
    llama4: bool = False
    """True for Llama 4: attention is computed in chunks, some layers have no positions, and the inputs of experts are
    weighted.
    """
    pairs: bool = False
    """True if rotary positions rotate pairs of neighboring elements. In other models they rotate pairs with one element
    from each half.
    """


_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "query_pre_attn_scalar": 256}
_GEMMA3 = {**_GEMMA, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096}
_LATENT = {"q_lora_rank": 1536, "norm_topk_prob": True}
_GLM = {"head_dim": 128, "partial_rotary_factor": 0.5}
FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(always_windowed=True, defaults={"sliding_window": 4096, "num_key_value_heads": 8}),
    "mixtral": Family(
        experts="num_local_experts",
        always_windowed=True,
        defaults={"num_key_value_heads": 8, "norm_topk_prob": True},
    ),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(head_norms=True, defaults={"head_dim": 128}),
    "qwen2_moe": Family(qkv_bias=True, experts="num_experts", scores="softmax", defaults={"norm_topk_prob": False}),
    "qwen3_moe": Family(experts="num_experts", head_norms=True),
    "gemma": Family(defaults={"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256}, gemma=True),
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
    "deepseek_v2": Family(
        experts="n_routed_experts", latent=True, scores="softmax", defaults={**_LATENT, "norm_topk_prob": False}
    ),
    "deepseek_v3": Family(experts="n_routed_experts", latent=True, scores="sigmoid", defaults=_LATENT),
    "kimi_k2": Family(experts="n_routed_experts", latent=True, scores="sigmoid", defaults=_LATENT),
    "glm4": Family(post_norms=True, output_bias=False, pairs=True, defaults={**_GLM, "attention_bias": True}),
    "glm4_moe": Family(
        experts="n_routed_experts",
        scores="sigmoid",
        output_bias=False,
        defaults={**_GLM, "norm_topk_prob": True, "first_k_dense_replace": 1},
    ),
    "phi3": Family(always_windowed=True),
    "olmo": Family(layer_norms=True, norm_parameters="", eps="layer_norm_eps", unsupported=("clip_qkv",)),
    "olmo2": Family(post_norms=True, pre_norms=False, whole_norms=True),
    "olmo3": Family(post_norms=True, pre_norms=False, whole_norms=True, period=4, defaults={"sliding_window": 4096}),
    "olmoe": Family(
        whole_norms=True,
        experts="num_experts",
        unsupported=("clip_qkv",),
        keys={"intermediate_size": "moe_intermediate_size"},
    ),
    "granite": Family(granite=True),
    "granitemoe": Family(granite=True, experts="num_local_experts", defaults={"norm_topk_prob": True}),
    "glm": Family(output_bias=False, pairs=True, defaults={**_GLM, "attention_bias": True}),
    "nemotron": Family(
        layer_norms=True,
        shifted=True,
        gated=False,
        eps="norm_eps",
        defaults={"partial_rotary_factor": 0.5, "hidden_act": "relu2"},
    ),
    "stablelm": Family(
        layer_norms=True,
        output_bias=False,
        eps="layer_norm_eps",
        bias_keys=("use_qkv_bias", "mlp_bias"),
        unsupported=("qk_layernorm",),
        defaults={"partial_rotary_factor": 0.25},
    ),
    "starcoder2": Family(
        layer_norms=True,
        gated=False,
        always_windowed=True,
        eps="norm_epsilon",
        bias_keys=("use_bias", "use_bias"),
        defaults={"use_bias": True, "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"},
    ),
    "gpt_neox": Family(
        layer_norms=True,
        gated=False,
        eps="layer_norm_eps",
        keys={"rotary_pct": "partial_rotary_factor"},
        defaults={
            "partial_rotary_factor": 0.25,
            "hidden_act": "gelu",
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "falcon": Family(
        layer_norms=True,
        gated=False,
        eps="layer_norm_epsilon",
        bias_keys=("bias", "bias"),
        unsupported=("alibi",),
        keys={
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "num_kv_heads": "num_key_value_heads",
            "ffn_hidden_size": "intermediate_size",
            "activation": "hidden_act",
        },
        defaults={"hidden_act": "gelu"},
    ),
    "cohere": Family(
        layer_norms=True,
        norm_parameters="g",
        pairs=True,
        eps="layer_norm_eps",
        unsupported=("use_qk_norm",),
        defaults={"logit_scale": 0.0625},
    ),
    "smollm3": Family(defaults={"num_key_value_heads": 4, "no_rope_layer_interval": 4}),
    "llama4_text": Family(
        experts="num_local_experts",
        scores="sigmoid",
        llama4=True,
        pairs=True,
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "attention_chunk_size": 8192,
            "no_rope_layer_interval": 4,
            "rms_norm_eps": 1e-5,
        },
    ),
}
"""The facts about a model that follow from ``model_type``, by its value in a config. Regions can be written for these
values only.
"""
_TEXT = {
    "gemma3": "gemma3_text",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "llama4": "llama4_text",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""The ``model_type`` of the text model inside a model that also has other parts, by that model's ``model_type``."""
_LINEAR = "its layers with linear attention, such as gated DeltaNet or Mamba, have no regions"
_ENCODER = "it is no decoder that makes one token after another, so a step has no meaning for it"
_REFUSED = {
    **dict.fromkeys(("qwen3_next", "qwen3_5", "kimi_linear", "minimax", "mamba", "mamba2", "jamba", "bamba"), _LINEAR),
    **dict.fromkeys(("falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2", "recurrent_gemma", "rwkv"), _LINEAR),
    **dict.fromkeys(("bert", "roberta", "modernbert", "deberta-v2", "distilbert", "xlm-roberta", "electra"), _ENCODER),
    **dict.fromkeys(("t5", "mt5", "bart", "whisper", "vit", "clip", "siglip", "dinov2", "wav2vec2"), _ENCODER),
}
"""The reason why no regions can be written for a model, by its ``model_type``."""


@dataclass(frozen=True, slots=True)
class Latent:
    """The sizes of multi-head latent attention.

    The keys and values of all heads of a token are computed from one short row, which is the token's latent.
    """

    q_rank: int
    """Elements of the latent of queries. 0 means that queries are computed without a latent."""
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
    """The sizes of experts that are divided into groups.

    Each token uses the best experts of the best groups, and the shared experts.
    """

    groups: int
    active_groups: int
    shared: int
    """Width of all shared experts together. Every token uses these experts."""
    scale: float
    """Factor by which the weights of the chosen experts are multiplied."""
    scores: str
    """Function that turns the experts' scores into weights: ``sigmoid`` or ``softmax``."""
    corrected: bool
    """True if a bias is added to each expert's weight when experts are chosen, but not when results are weighted."""
    renormalized: bool
    """True if the weights of the chosen experts add up to 1 before they are multiplied by ``scale``."""
    pair_ranked: bool
    """True if a group is ranked by the sum of its two best experts. Else it is ranked by its best expert."""
    shared_gate: bool = False
    """True if each token multiplies the result of the shared experts by the sigmoid of a product of its own."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and variants of the layers of a decoder-only transformer, or of one of its tensor-parallel parts."""

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
    """Number of layers without experts, in a model that has experts."""
    dense: int = 0
    """Width of the gated feed-forward layer in the layers without experts, in a model that has experts."""
    window: int = 0
    """Number of tokens that a token attends to in layers with a window. The token itself is counted."""
    windowed_layers: int = 0
    head_norms: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    layer_bias: bool = False
    """True if the products of the feed-forward layer have biases. With experts, the router's product has a bias, too."""
    sinks: bool = False
    """True if attention has sinks: each head has a number whose exponential is added to the sum of the softmax."""
    activation: Activation = "silu"
    limit: float = 7.0
    """Limit to which the activation ``clamped_silu`` clamps its products."""
    shifted_norms: bool = False
    """True if norms multiply by 1 + g instead of g."""
    layer_norms: bool = False
    """True if norms subtract the mean (layer norm)."""
    norm_parameters: str = "gc"
    """Parameters of layer norms: a weight ``g`` and a bias ``c``, one of the two, or none (``""``)."""
    gated: bool = True
    """True if the feed-forward layer has a gate product beside its up product."""
    post_norms: bool = False
    scale: float = 0.0
    """Factor by which attention scores are multiplied; 0 for one over the square root of a head's width."""
    softcap: float = 0.0
    """Bound of attention scores: a tanh keeps them below it (soft cap); 0 for no bound."""
    logits_softcap: float = 0.0
    renormalized: bool = True
    """True if the weights of the chosen experts add up to 1."""
    rotated: int = 0
    """Number of a head's elements to which positions are applied; 0 for all."""
    pairs: bool = False
    """True if rotary positions rotate pairs of neighboring elements. Else they rotate pairs with one element from each
    half.
    """
    still_layers: int = 0
    """Number of layers without positions."""
    tempered: bool = False
    """True if queries of layers without positions are multiplied by a factor for each token."""
    pre_norms: bool = True
    """True if the inputs of attention and of the feed-forward layer are normed."""
    whole_norms: bool = False
    """True if the queries of all heads are normed together, and so are the keys."""
    bare_norms: bool = False
    """True if the norms of each head have no weights."""
    residual: float = 1.0
    """Factor by which results of attention and of the feed-forward layer are multiplied before the residual is added."""
    logits: float = 1.0
    """Number by which logits are divided."""
    chunk: int = 0
    """Number of tokens in a chunk of attention, which layers with positions do not look beyond; 0 for no chunks."""
    weighted_inputs: bool = False
    """True if an expert's inputs are multiplied by the expert's weight. Else the expert's results are."""
    unread: tuple[str, ...] = ()
    """Facts in the config that the shape does not include, as messages for the user."""


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
    """The reader of one config, for one of ``parts`` tensor-parallel parts. The methods raise UsageError for a wrong
    value.
    """

    def __init__(self, path: Path, raw: Mapping[str, Any], parts: int) -> None:
        self.path = path
        self.parts = parts
        self.unread: list[str] = []
        outer = raw
        if isinstance(raw.get("text_config"), dict):
            common = ("model_type", "torch_dtype", "dtype", "quantization_config")
            text = {key: one for key, one in raw["text_config"].items() if one is not None}
            raw = {key: outer[key] for key in common if key in outer} | text
            self.unread.append(f"{outer.get('model_type')!r} is counted without its other parts, such as vision")
        kind, whole = raw.get("model_type"), outer.get("model_type")
        self.kind = _TEXT.get(kind, kind) if isinstance(kind, str) else ""
        if self.kind not in FAMILIES:
            named = [one.removesuffix("_text") for one in (kind, whole) if isinstance(one, str)]
            why = next((f": {_REFUSED[one]}" for one in named if one in _REFUSED), "")
            hint = "Divide the model's class, which needs no config: acceld model FILE.py:CLASS (docs/pytorch.md, 'A model of your own')."
            if not why:
                hint = f"It has regions for {', '.join(FAMILIES)}. {hint}"
            if kind is None:
                raise self._error("the file names no model_type", f"{FORM[0].upper()}{FORM[1:]}. {hint}")
            raise self._error(f"acceld has no regions for model_type {kind!r}{why}", hint)
        self.family = FAMILIES[self.kind]
        given = {key: value for key, value in raw.items() if value is not None or key in _EMPTY_MEANS}
        given = {self.family.keys.get(key, key): value for key, value in given.items()}
        self.raw = {**self.family.defaults, **given}
        if self.kind == "falcon":
            self._complete_falcon()

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

    def _complete_falcon(self) -> None:
        """Add the sizes that a config of Falcon says by its switches: heads of keys, and the feed-forward width."""
        if not self.truth("new_decoder_architecture"):
            shared = self.truth("multi_query", True)
            self.raw["num_key_value_heads"] = 1 if shared else self.raw.get("num_attention_heads")
        self.raw.setdefault("intermediate_size", 4 * self.whole("hidden_size"))

    # parts of a shape

    def shape(self) -> Shape:
        """Return the shape of the model that the config describes."""
        raw, family, parts = self.raw, self.family, self.parts
        deep = family.latent
        heads, hidden, layers = (self.whole(key) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
        kv_heads = self.whole("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self._error(f"{heads} heads of queries can not share {kv_heads} heads of keys equally")
        if "head_dim" not in raw and not deep and hidden % heads:
            raise self._error(f"hidden_size {hidden} can not be divided into {heads} heads", "Give head_dim.")
        head = self.whole("head_dim", max(1, hidden // heads))
        rotated = head if deep else self._rotated(head)
        own_heads = self.divided("num_attention_heads")
        if kv_heads % parts and parts % kv_heads:
            fit = [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
            hint = f"Choose another --tp: its heads fit {', '.join(map(str, fit))}."
            raise self._error(f"{kv_heads} heads of keys do not fit {parts} equal parts", hint)
        # Experts of Qwen, DeepSeek and GLM have a width of their own. Others have intermediate_size.
        narrow = family.experts in ("num_experts", "n_routed_experts")
        experts = self._experts()
        active = self.whole("num_experts_per_tok") if experts else 0
        if active > experts:
            raise self._error(f"num_experts_per_tok {active} is more than the {experts} experts")
        dense_layers = self._dense_layers(layers) if narrow or family.llama4 else 0
        window, windowed = (0, 0) if deep else self._windows(layers)
        bias = self.truth(family.bias_keys[0])
        changed = [key for key in family.unsupported if raw.get(key) not in (None, False)]
        changed += [key for key, refused in _NOT_CAUSAL.items() if raw.get(key) is refused]
        for key in changed:
            hint = "Divide the model's class, which needs no config: acceld model FILE.py:CLASS."
            raise self._error(f"{key} {json.dumps(raw[key])} is not supported", hint)
        if bias and deep:
            raise self._error("attention_bias true is not supported for latent attention")
        self._quantization()
        if family.whole_norms and parts > 1:
            self.unread.append(
                "the norms of queries and of keys are counted for a part's own heads, without the exchange of sums"
            )
        still = self._still_layers(layers)
        normed = (
            self.truth("use_qk_norm", family.llama4) if family.llama4 or self.kind == "glm4_moe" else family.head_norms
        )
        return Shape(
            self.kind,
            hidden,
            layers,
            own_heads,
            max(1, kv_heads // parts),
            head,
            self.divided("moe_intermediate_size" if narrow else "intermediate_size"),
            math.ceil(self.whole("vocab_size") / parts),
            self.number(family.eps, 1e-5 if family.layer_norms else 1e-6),
            self._dtype(),
            experts,
            active,
            self._latent() if deep else None,
            self._grouped(experts, active) if family.scores else None,
            dense_layers,
            self.divided("intermediate_size_mlp" if family.llama4 else "intermediate_size") if dense_layers else 0,
            window,
            windowed,
            normed,
            family.qkv_bias or bias,
            bias and family.output_bias,
            family.oss or self.truth(family.bias_keys[1]),
            family.oss,
            self._activation(),
            self.number("swiglu_limit", 7.0),
            family.gemma or family.shifted,
            post_norms=family.post_norms,
            scale=self._score_factor(head),
            softcap=self._cap("attn_logit_softcapping"),
            logits_softcap=self._cap("final_logit_softcapping"),
            renormalized=self.truth("norm_topk_prob"),
            layer_norms=family.layer_norms,
            norm_parameters=family.norm_parameters,
            gated=family.gated,
            rotated=0 if rotated == head else rotated,
            pairs=family.pairs,
            still_layers=still,
            tempered=family.llama4 and still > 0 and self.truth("attn_temperature_tuning", True),
            pre_norms=family.pre_norms,
            whole_norms=family.whole_norms,
            bare_norms=family.llama4,
            residual=self.number("residual_multiplier", 1.0) if family.granite else 1.0,
            logits=self._logits(),
            chunk=self.whole("attention_chunk_size") if family.llama4 and raw.get("attention_chunk_size") else 0,
            weighted_inputs=family.llama4,
            unread=tuple(self.unread),
        )

    def _score_factor(self, head: int) -> float:
        """Return the factor by which attention scores are multiplied, for a model without latent attention."""
        if self.family.granite:
            return self.number("attention_multiplier", 1.0)
        return float(self.number("query_pre_attn_scalar", head) ** -0.5)

    def _logits(self) -> float:
        """Return the number by which logits are divided."""
        if "logit_scale" in self.family.defaults:
            return 1.0 / self.number("logit_scale", 1.0)
        return self.number("logits_scaling", 1.0) if self.family.granite else 1.0

    def _rotated(self, head: int) -> int:
        """Return the number of a head's elements to which positions are applied."""
        settings = self.raw.get("rope_parameters")
        nested = settings.get("partial_rotary_factor") if isinstance(settings, dict) else None
        share = self.raw.get("partial_rotary_factor", 1.0) if nested is None else nested
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise self._error(f"partial_rotary_factor must be a number above 0, and at most 1, not {share!r}")
        count = int(head * share)
        if count < 2 or count % 2:
            named = f"head_dim {head}" + (f" times partial_rotary_factor {share:g} is {count}," if share != 1 else "")
            raise self._error(f"{named} is odd, so its two halves can not be rotated".replace(", is", ", which is"))
        return count

    def _still_layers(self, layers: int) -> int:
        """Return the number of layers that do not rotate queries and keys by their positions."""
        if "no_rope_layer_interval" not in self.family.defaults:
            return 0
        listed = self.raw.get("no_rope_layers")
        if not listed:
            return layers // self.whole("no_rope_layer_interval")
        if not isinstance(listed, list) or len(listed) != layers or any(one not in (0, 1) for one in listed):
            raise self._error(f"no_rope_layers must have a 0 (no positions) or a 1 for each of the {layers} layers")
        return listed.count(0)

    def _experts(self) -> int:
        key = self.family.experts
        if key == "num_experts" and key not in self.raw and "num_local_experts" in self.raw:
            key = "num_local_experts"  # the key's name since transformers 5
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
        raw, known = self.raw, ("full_attention", "chunked_attention" if self.family.llama4 else "sliding_attention")
        listed = raw.get("layer_types")
        if listed is not None:
            if not isinstance(listed, list) or len(listed) != layers:
                raise self._error(f"layer_types must name each of the {layers} layers")
            if unknown := [one for one in listed if one not in known]:
                raise self._error(f"layer_types: {unknown[0]!r} is not supported", f"Known are {' and '.join(known)}.")
            # chunked attention is counted by the layers with positions, not here
            count = listed.count("sliding_attention")
        elif raw.get("sliding_window") is None:
            count = 0
        elif self.kind.startswith("qwen") or self.kind == "smollm3":
            first = 0 if self.kind in ("qwen3_moe", "smollm3") else raw.get("max_window_layers", 28)
            if type(first) is not int or first < 0:
                raise self._error(f"max_window_layers must be a number of layers, not {first!r}")
            count = max(0, layers - first) if self.truth("use_sliding_window") else 0
        elif self.family.period:
            key = "_sliding_window_pattern" if "_sliding_window_pattern" in raw else "sliding_window_pattern"
            period = self.whole(key, self.family.period)
            count = layers - layers // period
        else:  # models such as Llama ignore the config's window
            count = layers if self.family.always_windowed else 0
        return (self.whole("sliding_window"), count) if count else (0, 0)

    def _dense_layers(self, layers: int) -> int:
        """Return the number of layers without experts in a model with experts."""
        if self.family.llama4:
            listed = self.raw.get("moe_layers")
            if listed is None:
                return layers - layers // self.whole("interleave_moe_layer_step", 1)
            if not isinstance(listed, list) or not set(listed) <= set(range(layers)) or not listed:
                raise self._error(f"moe_layers must be a list of numbers of the {layers} layers, not {listed!r}")
            return layers - len(set(listed))
        if self.family.experts == "num_experts":
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
        nope, rope = self.whole("qk_nope_head_dim"), self.whole("qk_rope_head_dim")
        if rope % 2:
            raise self._error(f"qk_rope_head_dim {rope} is odd, so its pairs can not be rotated")
        return Latent(
            0 if self.raw["q_lora_rank"] is None else self.whole("q_lora_rank"),
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
        key = "rope_scaling" if "rope_scaling" in self.raw else "rope_parameters"  # the key's name since transformers 5
        scaling = self.raw.get(key) or {}
        if not isinstance(scaling, dict):
            raise self._error(f"{key} must be a JSON object, not {scaling!r}")
        factor, by = scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (factor, by)):
            raise self._error(f"factor and mscale_all_dim of {key} must be numbers")
        more = 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0
        return float(head**-0.5 * more * more)

    def _grouped(self, experts: int, active: int) -> Grouped:
        """Return the sizes of the experts of DeepSeek, of GLM, of Qwen2 or of Llama 4."""
        family = self.family
        if family.llama4:
            return Grouped(1, 1, self.divided("intermediate_size"), 1.0, "sigmoid", False, False, False)
        soft = family.scores == "softmax"
        methods = ("greedy", "group_limited_greedy") if soft else ("noaux_tc",)
        check = {
            "scoring_func": (family.scores,),
            "topk_method": methods,
            "moe_layer_freq": (1,),
            "norm_topk_prob": (not soft,),
        }
        for key, known in check.items():
            if self.raw.get(key, known[0]) not in known:
                values = f"The supported value is {known[0]!r}." if len(known) == 1 else f"Supported are {known}."
                raise self._error(f"{key} {self.raw[key]!r} is not supported", values)
        groups, chosen = self.whole("n_group", 1), self.whole("topk_group", 1)
        if soft and self.raw.get("topk_method", "greedy") == "greedy":
            groups, chosen = 1, 1
        if experts % groups:
            raise self._error(f"n_routed_experts can not be divided into {groups} equal groups")
        if chosen > groups:
            raise self._error(f"topk_group {chosen} is more than the {groups} groups")
        if active > experts // groups * chosen:
            raise self._error(f"num_experts_per_tok {active} is more than the experts of {chosen} groups")
        gated = self.kind == "qwen2_moe"
        return Grouped(
            groups,
            chosen,
            self.divided("shared_expert_intermediate_size")
            if gated
            else self.divided("moe_intermediate_size") * self.whole("n_shared_experts", 1),
            self.number("routed_scaling_factor", 1.0),
            family.scores,
            not soft,
            not soft,
            not soft,
            gated,
        )


_NOT_CAUSAL = {"use_bidirectional_attention": True, "is_causal": False}
"""Config keys of models in which a token attends to later ones, with the value that says so."""
_EMPTY_MEANS = frozenset(
    {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "q_lora_rank", "attention_chunk_size"}
)
"""Config keys for which null means that the model lacks the feature.

For all other keys, null means Hugging Face's default value.
"""
