"""The regions of a transformer's step have the shapes, the work and the results of the model's own formulas."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.errors import UsageError
from acceld.lowering.blocks import Region, StepSize, regions_of
from acceld.lowering.configs import Shape, read_config
from acceld.lowering.kernels import lowered, work
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import printed
from tests.acceld.lowering.test_formulas import in_dialect, run_all

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 160,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 200,
    "torch_dtype": "float32",
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
LATENT: dict[str, Any] = {
    **SMALL,
    "model_type": "deepseek_v3",
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "q_lora_rank": 48,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 96,
    "routed_scaling_factor": 2.5,
    "rope_scaling": {"factor": 40, "mscale_all_dim": 1.0},
}
ALTERNATING: dict[str, Any] = {**SMALL, "num_hidden_layers": 5, "sliding_window": 12}
SOFT: dict[str, Any] = {
    **LATENT,
    "model_type": "deepseek_v2",
    "topk_method": "group_limited_greedy",
    "norm_topk_prob": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "deepseek_v2": SOFT,
    "deepseek_v2_lite": {**SOFT, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1},
    "deepseek_v3": LATENT,
    "glm4": {**SMALL, "model_type": "glm4", "attention_bias": True},
    "glm4_moe": {
        **{key: LATENT[key] for key in LATENT if not key.endswith(("_rank", "_group")) and key != "rope_scaling"},
        "model_type": "glm4_moe",
        "attention_bias": True,
        "use_qk_norm": True,
    },
    "granite": {
        **SMALL,
        "model_type": "granite",
        "attention_multiplier": 0.02,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    },
    "granitemoe": {
        **SMALL,
        "model_type": "granitemoe",
        "residual_multiplier": 0.22,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "llama4": {
        "model_type": "llama4",
        "text_config": {
            **SMALL,
            "model_type": "llama4_text",
            "num_hidden_layers": 8,
            "attention_chunk_size": 12,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
            "num_local_experts": 8,
        },
    },
    "olmo2": {**SMALL, "model_type": "olmo2"},
    "olmo3": {**ALTERNATING, "model_type": "olmo3"},
    "phi3": {**SMALL, "model_type": "phi3", "partial_rotary_factor": 0.75, "sliding_window": 24},
    "smollm3": {**SMALL, "model_type": "smollm3", "no_rope_layers": [1, 0]},
    "gemma2": {**ALTERNATING, "model_type": "gemma2"},
    "gemma3_text": {
        **ALTERNATING,
        "model_type": "gemma3_text",
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 40,
    },
    "gpt_oss": {**ALTERNATING, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2},
    "llama": SMALL,
    "mistral": {**SMALL, "model_type": "mistral", "sliding_window": 24},
    "mixtral": {**SMALL, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {**SMALL, "model_type": "qwen2"},
    "qwen3": {**SMALL, "model_type": "qwen3"},
    "qwen3_moe": {**SMALL, "model_type": "qwen3_moe", **EXPERTS},
    "nemotron": {**SMALL, "model_type": "nemotron", "hidden_act": "relu2"},
    "stablelm": {**SMALL, "model_type": "stablelm", "use_qkv_bias": True},
    "starcoder2": {**SMALL, "model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "sliding_window": 24},
    "glm": {**SMALL, "model_type": "glm"},
    "gemma": {**SMALL, "model_type": "gemma"},
    "olmo": {**SMALL, "model_type": "olmo"},
    "gpt_neox": {**SMALL, "model_type": "gpt_neox", "rotary_pct": 0.5},
    "falcon": {**SMALL, "model_type": "falcon", "bias": False, "multi_query": True},
    "cohere": {**SMALL, "model_type": "cohere"},
    "olmoe": {**SMALL, "model_type": "olmoe", "intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**SMALL, "model_type": "qwen2_moe", **EXPERTS, "shared_expert_intermediate_size": 128},
}
LLAMA_8B = Shape("llama", 4096, 32, 32, 8, 128, 14336, 128256, 1e-5, "bfloat16")


def shape_of(folder: Path, config: dict[str, Any], parts: int = 1) -> Shape:
    """Return the shape that a config describes."""
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return read_config(path, parts)


def loaded(region: Region, folder: Path) -> tuple[Any, Path]:
    """Return the functions of a region's reference, and its file."""
    path = folder / f"{region.name}.py"
    path.write_text(region.text, encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(region.text, str(path), "exec"), space)  # noqa: S102
    return space, path


def right(region: Region, folder: Path, tolerance: float) -> None:
    """Check the lowered kernel of a region against its reference in float64."""
    space, path = loaded(region, folder)
    np.random.seed(0)
    drawn = space["get_inputs"]()
    assert [(a.shape, a.dtype.name) for a in drawn] == [(one.shape, one.dtype) for one in region.operands]
    wide = [a.astype(np.float64) if a.dtype.name in ("float32", "bfloat16") else a for a in drawn]
    expected = space["forward"](*wide)
    given = [(one.name, (one.shape, one.dtype)) for one in region.operands]
    source = printed(lowered(traced(space["forward"], path, given), "nki"), "nki")
    in_dialect(source)
    every = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(run_all(source, *drawn), every, strict=True):
        found = np.asarray(one, np.float64).reshape(other.shape)
        if other.dtype.kind in "iu":  # choices among scores: rounding exchanges nearly equal ones
            assert np.mean(found != other) <= 2 * tolerance, region.name
        else:
            assert np.linalg.norm(found - other) <= tolerance * np.linalg.norm(other), region.name


@pytest.mark.parametrize(
    ("kind", "decode"),
    [
        # every second kind of model, in one of both steps, and all in `make test-all`
        pytest.param(kind, decode, marks=pytest.mark.slow if kind != "llama" and (number + 2 * decode) % 4 else ())
        for number, kind in enumerate(KINDS)
        for decode in (False, True)
    ],
)
def test_every_region_is_lowered_and_right(kind: str, decode: bool, tmp_path: Path) -> None:
    shape, step = shape_of(tmp_path, KINDS[kind]), StepSize(2, 40, decode)
    own = set() if kind == "llama" else {one.text for one in regions_of(shape_of(tmp_path, SMALL), step)}
    for region in regions_of(shape, step):
        if region.text not in own:  # those are tested as Llama's
            right(region, tmp_path, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_region_is_lowered_and_right_in_bfloat16(kind: str, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, {**KINDS[kind], "torch_dtype": "bfloat16"})
    for decode in (False, True):
        for region in regions_of(shape, StepSize(2, 40, decode)):
            right(region, tmp_path, 2e-2)


def test_regions_together_are_the_block_of_the_model(tmp_path: Path) -> None:
    """Attention and the gated layer, step by step from the regions, against the formulas of the whole block."""
    shape = shape_of(tmp_path, SMALL)
    regions = {one.name: loaded(one, tmp_path)[0]["forward"] for one in regions_of(shape, StepSize(1, 24, False))}
    rng = np.random.default_rng(0)
    x, ones = rng.standard_normal((24, 160)), np.ones(160)
    w = {n: rng.standard_normal(s) * 0.1 for n, s in {"q": (128, 160), "k": (64, 160), "v": (64, 160), "o": (160, 128),
         "g": (192, 160), "u": (192, 160), "d": (160, 192)}.items()}  # fmt: skip
    angles = np.arange(24)[:, None] * 0.1 ** np.arange(16)[None, :]
    cos, sin = (np.concatenate([f(angles)] * 2, axis=1) for f in (np.cos, np.sin))
    q, k, v = regions["norm_qkv"](x, ones, w["q"], w["k"], w["v"])
    q, k = regions["rope"](q.reshape(24, 4, 32), k.reshape(24, 2, 32), cos, sin)
    heads = q.reshape(24, 2, 2, 32).transpose(1, 2, 0, 3)[None]
    held = [one.reshape(24, 2, 32).transpose(1, 0, 2)[None] for one in (k, v)]
    a = regions["attention"](heads, *held)[0].transpose(2, 0, 1, 3).reshape(24, 128)
    y = regions["attention_output"](x, a, w["o"])
    found = regions["down"](y, regions["norm_gate_up"](y, ones, w["g"], w["u"]), w["d"])

    def turned(one: Any) -> Any:
        pairs = one[..., :16] + 1j * one[..., 16:]
        spun = pairs * np.exp(1j * angles)[:, None]
        return np.concatenate([spun.real, spun.imag], axis=-1)

    n = x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.eps)
    qs, ks = turned((n @ w["q"].T).reshape(24, 4, 32)), turned((n @ w["k"].T).reshape(24, 2, 32))
    vs, parts = (n @ w["v"].T).reshape(24, 2, 32), []
    for head in range(4):
        s = qs[:, head] @ ks[:, head // 2].T / np.sqrt(32)
        s[np.triu_indices(24, 1)] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        parts.append(p / p.sum(-1, keepdims=True) @ vs[:, head // 2])
    y = x + np.concatenate(parts, 1) @ w["o"].T
    n = y / np.sqrt((y**2).mean(-1, keepdims=True) + shape.eps)
    gate = n @ w["g"].T
    expected = y + (gate / (1 + np.exp(-gate)) * (n @ w["u"].T)) @ w["d"].T
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_decode_over_latents_is_the_attention_of_their_keys_and_values(tmp_path: Path) -> None:
    """Queries and values absorb the weights that would make keys and values: the last token of a prefill has one result."""
    shape, rng = shape_of(tmp_path, LATENT), np.random.default_rng(0)
    prefill, decode = (
        {one.name: loaded(one, tmp_path)[0]["forward"] for one in regions_of(shape, StepSize(2, 24, decoding))}
        for decoding in (False, True)
    )
    q, qr = rng.standard_normal((2, 4, 24, 32)), rng.standard_normal((2, 4, 24, 16))
    c, kr, w = rng.standard_normal((2, 24, 40)), rng.standard_normal((2, 24, 16)), rng.standard_normal((4 * 56, 40))
    kv = prefill["keys_values"](c.reshape(48, 40), w).reshape(2, 24, 4, 56).swapaxes(1, 2)
    wanted = prefill["attention"](q, qr, kv[..., :32], kr, kv[..., 32:])[:, :, -1]
    heads = w.reshape(4, 56, 40)
    rows = decode["absorb_queries"](q[:, :, -1], heads[:, :32])
    rows = decode["attention_decode"](rows, qr[:, :, -1], c, kr, np.array([24, 24]))
    assert np.allclose(decode["absorb_values"](rows, heads[:, 32:].swapaxes(1, 2)), wanted)
    assert shape.latent is not None and shape.latent.scale == pytest.approx(48**-0.5 * (0.1 * np.log(40) + 1) ** 2)


def test_experts_are_chosen_in_the_best_groups(tmp_path: Path) -> None:
    regions = {
        one.name: loaded(one, tmp_path)[0]["forward"]
        for one in regions_of(shape_of(tmp_path, LATENT), StepSize(1, 24, False))
    }
    rng = np.random.default_rng(0)
    x, w, bias = rng.standard_normal((24, 160)), rng.standard_normal((16, 160)), rng.standard_normal(16) * 0.05
    h, ids, weights = regions["router"](x, np.ones(160), w, bias)
    scores = 1 / (1 + np.exp(-h @ w.T))
    for token in range(24):
        ranked = scores[token] + bias
        best = sorted(range(4), key=lambda g: -np.sort(ranked[4 * g : 4 * g + 4])[-2:].sum())[:2]
        allowed = sorted((e for g in best for e in range(4 * g, 4 * g + 4)), key=lambda e: -ranked[e])[:3]
        assert list(ids[token]) == allowed
        own = scores[token][allowed]
        assert np.allclose(weights[token], own / own.sum() * 2.5)


def test_deepseek_v2_ranks_a_group_by_its_best_expert(tmp_path: Path) -> None:
    """Experts of V2 are weighted by a softmax over all experts; the Lite model has no groups and no latent of queries."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((24, 160)), rng.standard_normal((16, 160))
    for kind, active in (("deepseek_v2", 2), ("deepseek_v2_lite", 1)):
        found = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS[kind]), StepSize(1, 24, False))}
        h, ids, weights = loaded(found["router"], tmp_path)[0]["forward"](x, np.ones(160), w)
        scores = np.exp(h @ w.T) / np.exp(h @ w.T).sum(-1, keepdims=True)
        groups = 4 if active == 2 else 1
        for token in range(24):
            parts = scores[token].reshape(groups, -1)
            best = np.argsort(-parts.max(axis=1))[:active]
            allowed = sorted((e for e in range(16) if e // (16 // groups) in best), key=lambda e: -scores[token][e])[:3]
            assert list(ids[token]) == allowed
            assert np.allclose(weights[token], scores[token][allowed] * 2.5)
    sizes = {one.name: one.shape for one in found["norm_latents"].operands}
    assert "queries" not in found and sizes["wq"] == (4 * 48, 160)


def test_granite_multiplies_scores_residuals_and_logits(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["granite"]), StepSize(1, 12, False))}
    forward = {name: loaded(one, tmp_path)[0]["forward"] for name, one in regions.items()}
    rng = np.random.default_rng(0)
    x, h, w = (rng.standard_normal(size) for size in ((12, 160), (12, 192), (160, 192)))
    assert np.allclose(forward["down"](x, h, w), x + 0.22 * (h @ w.T))
    w = rng.standard_normal((200, 160))
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    assert np.allclose(forward["logits"](x, np.ones(160), w), normed @ w.T / 8)
    q, k, v = rng.standard_normal((1, 2, 2, 12, 32)), *rng.standard_normal((2, 1, 2, 12, 32))
    e = np.exp(0.02 * np.einsum("bkgqd,bksd->bkgqs", q, k)) * (np.arange(12)[:, None] >= np.arange(12))
    assert np.allclose(forward["attention"](q, k, v), np.einsum("bkgqs,bksd->bkgqd", e / e.sum(-1, keepdims=True), v))


def test_layer_norms_subtract_the_mean_and_layers_without_a_gate_have_one_product(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, g, c, b = (rng.standard_normal(size) for size in ((12, 160), 160, 160, 224))
    w, y, d = rng.standard_normal((224, 160)), rng.standard_normal((160, 224)), rng.standard_normal(160)
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    for kind, key, biases in (("nemotron", "norm_eps", 0), ("starcoder2", "norm_epsilon", 1)):
        config = {**KINDS[kind], key: 1e-3, "intermediate_size": 224}
        regions = {one.name: one for one in regions_of(shape_of(tmp_path, config), StepSize(1, 12, False))}
        forward = {name: loaded(one, tmp_path)[0]["forward"] for name, one in regions.items()}
        assert "gate_up" not in " ".join(regions) and len(regions["norm_qkv"].operands) == 6 + 3 * biases
        up = (normed * (g if biases else 1.0 + g) + c) @ w.T + biases * b
        bent = 0.5 * up * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * (up + 0.044715 * up**3)))
        wanted = bent if biases else np.maximum(up, 0.0) ** 2
        assert np.allclose(forward["norm_up"](x, g, c, w, *[b] * biases), wanted)
        assert np.allclose(forward["down"](x, wanted, y, *[d] * biases), x + wanted @ y.T + biases * d)
        scaled = (1.0 + g if kind == "nemotron" else g) * normed + c
        assert np.allclose(forward["logits"](x, g, c, w), scaled @ w.T)


def test_norms_have_the_parameters_of_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((12, 160)), rng.standard_normal((200, 160))
    given = {"g": rng.standard_normal(160), "c": rng.standard_normal(160)}
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    for kind, parameters, factor in (("olmo", "", 1.0), ("cohere", "g", 0.0625), ("gpt_neox", "gc", 1.0)):
        last = regions_of(shape_of(tmp_path, KINDS[kind]), StepSize(12, 12, True))[-1]
        wanted = normed * (given["g"] if "g" in parameters else 1.0) + (given["c"] if "c" in parameters else 0.0)
        found = loaded(last, tmp_path)[0]["forward"](x, *[given[name] for name in parameters], w)
        assert np.allclose(found, wanted @ w.T * factor)


def test_gpt_neox_and_falcon_have_their_own_names_for_sizes(tmp_path: Path) -> None:
    neox = shape_of(tmp_path, KINDS["gpt_neox"])
    assert (neox.rotated, neox.activation, neox.qkv_bias, neox.output_bias, neox.layer_bias) == (
        16,
        "gelu",
        *[True] * 3,
    )
    assert shape_of(tmp_path, {**KINDS["gpt_neox"], "hidden_act": "gelu_new"}).activation == "gelu_tanh"
    sizes = {"hidden_size": 128, "vocab_size": 200, "n_layer": 3, "n_head": 4, "num_kv_heads": 2}
    for change, kv_heads, width in (
        ({}, 1, 512),
        ({"multi_query": False}, 4, 512),
        ({"new_decoder_architecture": True, "ffn_hidden_size": 320}, 2, 320),
    ):
        found = shape_of(tmp_path, {"model_type": "falcon", **sizes, **change})
        assert (found.layers, found.heads, found.kv_heads, found.intermediate) == (3, 4, kv_heads, width)
        assert not found.gated and not found.qkv_bias and not found.layer_bias
    x, w = np.random.default_rng(0).standard_normal((2, 12, 128))[..., :128], np.eye(128)
    up = next(one for one in regions_of(found, StepSize(1, 12, False)) if one.name == "norm_up")
    normed = (x[0] - x[0].mean(-1, keepdims=True)) / np.sqrt(x[0].var(-1, keepdims=True) + 1e-5)
    curve = normed * 0.5 * (1.0 + np.vectorize(math.erf)(normed / np.sqrt(2.0)))
    assert np.allclose(loaded(up, tmp_path)[0]["forward"](x[0], np.ones(128), np.zeros(128), w), curve)


def test_olmo_norms_queries_over_all_heads_and_results_alone(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["olmo2"]), StepSize(1, 12, False))}
    assert list(regions) == ["qkv", "rope", "attention", "attention_output", "gate_up", "down", "post_norm", "logits"]
    rng = np.random.default_rng(0)
    x, gq, gk = rng.standard_normal((12, 160)), rng.standard_normal(128), rng.standard_normal(64)
    wq, wk, wv = (rng.standard_normal((rows, 160)) for rows in (128, 64, 64))
    q, k, v = loaded(regions["qkv"], tmp_path)[0]["forward"](x, gq, gk, wq, wk, wv)
    for found, w, g in ((q, wq, gq), (k, wk, gk)):
        made = x @ w.T
        assert np.allclose(found, made / np.sqrt((made**2).mean(-1, keepdims=True) + 1e-6) * g)
    assert np.allclose(v, x @ wv.T)
    assert "exchange of sums" in shape_of(tmp_path, KINDS["olmo2"], parts=2).unread[0]


def test_olmoe_norms_queries_over_all_heads_after_the_norm_of_their_input(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["olmoe"]), StepSize(1, 12, False))}
    assert {one.shape for one in regions["expert"].operands} >= {(96, 160), (160, 96)}
    rng = np.random.default_rng(0)
    x, g, gq, gk = (rng.standard_normal(size) for size in ((12, 160), 160, 128, 64))
    wq, wk, wv = (rng.standard_normal((rows, 160)) for rows in (128, 64, 64))

    def normed(x: Any, g: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g

    found = loaded(regions["norm_qkv"], tmp_path)[0]["forward"](x, g, gq, gk, wq, wk, wv)
    h = normed(x, g)
    for one, wanted in zip(found, (normed(h @ wq.T, gq), normed(h @ wk.T, gk), h @ wv.T), strict=True):
        assert np.allclose(one, wanted)


def test_qwen2_weights_the_result_of_its_shared_expert(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["qwen2_moe"]), StepSize(1, 12, False))}
    rng = np.random.default_rng(0)
    h, wd, x, ws = (rng.standard_normal(size) for size in ((12, 128), (160, 128), (12, 160), (1, 160)))
    found = loaded(regions["shared_down"], tmp_path)[0]["forward"](h, wd, x, ws)
    assert np.allclose(found, h @ wd.T / (1.0 + np.exp(-(x @ ws.T))))
    _, ids, weights = loaded(regions["router"], tmp_path)[0]["forward"](x, np.ones(160), rng.standard_normal((8, 160)))
    assert ids.shape == (12, 2) and np.all(weights.sum(-1) < 1.0)


def test_positions_turn_a_part_of_each_head_and_not_in_every_layer(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((12, 4, 32)), rng.standard_normal((12, 2, 32))
    for kind, width, pairs in (("phi3", 24, False), ("glm4", 16, True)):
        config = {"partial_rotary_factor": width / 32, **KINDS[kind], "head_dim": 32}
        regions = {one.name: one for one in regions_of(shape_of(tmp_path, config), StepSize(1, 12, False))}
        angles = np.arange(12)[:, None] * 0.1 ** np.arange(width // 2)[None, :]
        cos, sin = (f(angles if pairs else np.concatenate([angles] * 2, axis=1)) for f in (np.cos, np.sin))
        found = loaded(regions["rope"], tmp_path)[0]["forward"](q, k, cos, sin)
        for one, given in zip(found, (q, k), strict=True):
            a, b = (given[..., 0:width:2], given[..., 1:width:2]) if pairs else np.split(given[..., :width], 2, axis=-1)
            spun = (a + 1j * b) * np.exp(1j * angles)[:, None]
            assert np.allclose(one, np.concatenate([spun.real, spun.imag, given[..., width:]], axis=-1))
    counts = {one.name: one.count for one in regions_of(shape_of(tmp_path, KINDS["smollm3"]), StepSize(1, 12, False))}
    assert (counts["rope"], counts["attention"]) == (1, 2)


def test_llama4_attends_in_chunks_and_weights_inputs_of_experts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for length in (30, 36):
        regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["llama4"]), StepSize(2, length, False))}
        q, k, v = rng.standard_normal((2, 2, 2, length, 32)), *rng.standard_normal((2, 2, 2, length, 32))
        seen = np.arange(length)[:, None] >= np.arange(length)
        seen &= np.arange(length)[:, None] // 12 == np.arange(length) // 12
        e = np.exp(np.einsum("bkgqd,bksd->bkgqs", q, k) * 32**-0.5) * seen
        expected = np.einsum("bkgqs,bksd->bkgqd", e / e.sum(-1, keepdims=True), v)
        assert np.allclose(loaded(regions["attention_chunk"], tmp_path)[0]["forward"](q, k, v), expected)
    counts = {name: one.count for name, one in regions.items()}
    assert (counts["attention_chunk"], counts["attention"], counts["rope"], counts["scale_queries"]) == (6, 2, 6, 2)
    assert (counts["router"], counts["norm_gate_up"]) == (4, 4), "each second layer has experts"
    decode = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["llama4"]), StepSize(2, 30, True))}
    assert decode["attention_chunk_decode"].operands[1].shape == (2, 2, 12, 32)
    x, w = rng.standard_normal((72, 160)), rng.standard_normal((8, 160))
    h, ids, weights = loaded(regions["router"], tmp_path)[0]["forward"](x, np.ones(160), w)
    assert np.array_equal(ids[:, 0], np.argmax(h @ w.T, axis=1))
    assert np.allclose(weights[:, 0], 1 / (1 + np.exp(-np.max(h @ w.T, axis=1))))
    sizes = {one.name: one.shape for one in regions["expert"].operands}
    given = {name: rng.standard_normal(size) for name, size in sizes.items() if name != "ids"}
    picked = rng.integers(0, 72, sizes["ids"])
    rows = given["x"][picked] * given["p"][:, None]
    gate = rows @ given["wg"].T
    found = loaded(regions["expert"], tmp_path)[0]["forward"](ids=picked, **given)
    assert np.allclose(found, gate / (1 + np.exp(-gate)) * (rows @ given["wu"].T) @ given["wd"].T)


def products_of(shape: Shape, step: StepSize) -> int:
    """Return the operations of all matrix products of a step."""
    products = 0
    for region in regions_of(shape, step):
        space: dict[str, Any] = {}
        exec(compile(region.text, __file__, "exec"), space)  # noqa: S102
        given = [(one.name, (one.shape, one.dtype)) for one in region.operands]
        products += region.count * work(traced(space["forward"], Path(__file__), given))[0]
    return products


LITE: dict[str, Any] = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 27, "num_attention_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64,
    "num_experts_per_tok": 6, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1, "vocab_size": 102400,
}  # fmt: skip
AIR: dict[str, Any] = {
    "model_type": "glm4_moe", "attention_bias": True, "hidden_size": 4096, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "num_attention_heads": 96, "num_key_value_heads": 8, "n_routed_experts": 128,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_hidden_layers": 46,
    "vocab_size": 151552,
}  # fmt: skip
SCOUT: dict[str, Any] = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
    "vocab_size": 202048,
}  # fmt: skip
MINI: dict[str, Any] = {
    "model_type": "nemotron", "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 32,
    "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000,
}  # fmt: skip


@pytest.mark.parametrize(
    "config, weights, scores",
    [
        # attention: queries, latent, output, absorbed keys and values; one dense layer, 26 with 6 + 2 experts; logits
        (
            LITE,
            27 * (2048 * 16 * 192 + 2048 * 576 + 2048 * 2048 + 16 * 256 * 512)
            + 3 * 2048 * 10944
            + 26 * (64 * 2048 + 8 * 3 * 2048 * 1408)
            + 2048 * 102400,
            27 * 16 * (576 + 512),
        ),
        (
            AIR,
            46 * (2 * 4096 * 96 * 128 + 2 * 4096 * 8 * 128)
            + 3 * 4096 * 10944
            + 45 * (128 * 4096 + 9 * 3 * 4096 * 1408)
            + 4096 * 151552,
            46 * 96 * 2 * 128,
        ),
        (
            SCOUT,
            48 * (2 * 5120 * 5120 + 2 * 5120 * 1024 + 16 * 5120 + 2 * 3 * 5120 * 8192) + 5120 * 202048,
            48 * 40 * 2 * 128,
        ),
        (
            MINI,
            32 * (2 * 3072 * 3072 + 2 * 3072 * 1024 + 2 * 3072 * 9216) + 3072 * 256000,
            32 * 24 * 2 * 128,
        ),
    ],
)
def test_a_token_multiplies_each_active_weight_once(
    config: dict[str, Any], weights: int, scores: int, tmp_path: Path
) -> None:
    """One token after 1,024 others: two operations for each weight of its experts, and for each cached element."""
    assert products_of(shape_of(tmp_path, config), StepSize(1, 1024, True)) == 2 * weights + 2 * 1024 * scores


def test_the_work_of_a_step_is_that_of_the_model() -> None:
    """A step of Llama-3.1-8B multiplies each token with its 7.5 billion weights of products, and attends."""
    products = products_of(LLAMA_8B, StepSize(1, 2048, False))
    layer = 4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 14336
    attention = 2 * 2 * 32 * 2048 * 2048 * 128
    assert products == 32 * (2 * 2048 * layer + attention) + 2 * 4096 * 128256


def test_a_window_is_the_attention_of_its_tokens_alone(tmp_path: Path) -> None:
    """Blocks of the window's width, a mask over all tokens, and the cache of the last tokens: one result."""
    config = KINDS["gpt_oss"]
    rng = np.random.default_rng(0)
    for length in (20, 24, 40):  # less than two windows of 12, two, and four blocks of which the last is not full
        found = {one.name: one for one in regions_of(shape_of(tmp_path, config), StepSize(2, length, False))}
        decode = {one.name: one for one in regions_of(shape_of(tmp_path, config), StepSize(2, length, True))}
        region = found["attention_window"]
        assert (region.count, found["attention"].count) == (3, 2), "each second of five layers has no window"
        q, sinks = rng.standard_normal((2, 2, 2, length, 32)), rng.standard_normal((2, 2))
        k, v = rng.standard_normal((2, 2, 2, length, 32))
        for name, width in (("attention_window", 12), ("attention", length)):
            expected = np.zeros_like(q)
            for b, head, group, row in np.ndindex(q.shape[:-1]):
                seen = slice(max(0, row - width + 1), row + 1)
                e = np.exp(k[b, head, seen] @ q[b, head, group, row] * 32**-0.5)
                expected[b, head, group, row] = e @ v[b, head, seen] / (e.sum() + np.exp(sinks[head, group]))
            assert np.allclose(loaded(found[name], tmp_path)[0]["forward"](q, k, v, sinks), expected)
            last = loaded(decode[f"{name}_decode"], tmp_path)[0]["forward"]
            cached = last(q[..., -1, :], k[:, :, -width:], v[:, :, -width:], np.full(2, width), sinks)
            assert np.allclose(cached, expected[..., -1, :])


def test_gemma_norms_by_one_more_than_its_weights_and_bends_scores(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["gemma2"]), StepSize(1, 12, False))}
    assert regions["post_norm"].count == 10 and regions["attention"].count == 5, "a window over all tokens is none"
    forward = {name: loaded(one, tmp_path)[0]["forward"] for name, one in regions.items()}
    rng = np.random.default_rng(0)
    x, y, g, w = (rng.standard_normal(s) for s in ((12, 160), (12, 160), (160,), (200, 160)))

    def norm(z: Any) -> Any:
        return z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-6) * (1 + g)

    assert np.allclose(forward["post_norm"](x, y, g), x + norm(y))
    assert np.allclose(forward["logits"](x, g, w), 30 * np.tanh(norm(x) @ w.T / 30))
    a, b = (rng.standard_normal((192, 160)) for _ in "ab")
    gate, up = norm(x) @ a.T, norm(x) @ b.T
    curve = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    assert np.allclose(forward["norm_gate_up"](x, g, a, b), curve * up)
    q, k, v = rng.standard_normal((1, 2, 2, 12, 32)), *rng.standard_normal((2, 1, 2, 12, 32))
    scores = 50 * np.tanh(np.einsum("bkgqd,bksd->bkgqs", q, k) / 16 / 50)  # query_pre_attn_scalar is 256
    e = np.exp(scores) * (np.arange(12)[:, None] >= np.arange(12))
    expected = np.einsum("bkgqs,bksd->bkgqd", e / e.sum(-1, keepdims=True), v)
    assert np.allclose(forward["attention"](q, k, v), expected)


def test_experts_of_gpt_oss_have_biases_and_a_clamped_gate(tmp_path: Path) -> None:
    regions = {one.name: one for one in regions_of(shape_of(tmp_path, KINDS["gpt_oss"]), StepSize(1, 24, False))}
    rng = np.random.default_rng(0)
    sizes = {one.name: one.shape for one in regions["expert"].operands}
    given = {name: rng.standard_normal(size) for name, size in sizes.items() if name != "ids"}
    given["wg"] *= 3.0  # so that gates pass the limit
    ids = rng.integers(0, 24, sizes["ids"])
    found = loaded(regions["expert"], tmp_path)[0]["forward"](ids=ids, **given)
    h = given["x"][ids]
    gate = np.minimum(h @ given["wg"].T + given["bg"], 7.0)
    up = np.clip(h @ given["wu"].T + given["bu"], -7.0, 7.0)
    out = (up + 1) * gate / (1 + np.exp(-1.702 * gate)) @ given["wd"].T + given["bd"]
    assert np.allclose(found, out * given["p"][:, None])
    x, w, bias = rng.standard_normal((24, 160)), rng.standard_normal((8, 160)), rng.standard_normal(8)
    h, ids, weights = loaded(regions["router"], tmp_path)[0]["forward"](x, np.ones(160), w, bias)
    logits = h @ w.T + bias
    assert np.array_equal(ids, np.argsort(-logits, axis=1)[:, :2])
    top = np.exp(np.take_along_axis(logits, ids, axis=1))
    assert np.allclose(weights, top / top.sum(1, keepdims=True))


@pytest.mark.parametrize(
    "change, window, windowed",
    [
        ({"model_type": "mistral"}, 4096, 8),  # Hugging Face's default
        ({"model_type": "mistral", "sliding_window": None}, 0, 0),
        ({"model_type": "qwen3", "sliding_window": 64}, 0, 0),
        ({"model_type": "qwen3", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 5}, 64, 3),
        ({"model_type": "gemma2"}, 4096, 4),
        ({"model_type": "gemma3_text", "sliding_window": 512}, 512, 7),
        ({"model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2}, 128, 4),
        ({"model_type": "gemma2", "layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 5}, 4096, 3),
    ],
)
def test_layers_with_a_window_are_counted(change: dict[str, Any], window: int, windowed: int, tmp_path: Path) -> None:
    shape = shape_of(tmp_path, {**SMALL, "num_hidden_layers": 8, **change})
    assert (shape.window, shape.windowed_layers) == (window, windowed)


def test_what_a_config_says_of_a_models_work_is_in_its_regions(tmp_path: Path) -> None:
    """A bias, layers without experts, weights that are not made to add up to 1, a text part, quantized weights."""
    biased = {one.name: one for one in regions_of(shape_of(tmp_path, {**SMALL, "attention_bias": True, "mlp_bias": True}),
                                                  StepSize(1, 8, False))}  # fmt: skip
    assert {one.name for one in biased["norm_qkv"].operands} > {"bq", "bk", "bv"}
    assert {one.name for one in biased["down"].operands} == {"x", "h", "wd", "bd"}
    mixed = {**KINDS["qwen3_moe"], "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [5]}
    counts = {one.name: one.count for one in regions_of(shape_of(tmp_path, mixed), StepSize(1, 8, False))}
    assert (counts["router"], counts["norm_gate_up"], counts["down"], counts["combine"]) == (2, 4, 4, 2)
    assert not shape_of(tmp_path, KINDS["qwen3_moe"]).renormalized, "Hugging Face's default"
    assert shape_of(tmp_path, {**KINDS["qwen3_moe"], "norm_topk_prob": True}).renormalized
    outer: dict[str, Any] = {
        "model_type": "gemma3",
        "dtype": "float16",
        "text_config": {**KINDS["gemma3_text"], "torch_dtype": None},
    }
    outer["text_config"].pop("vocab_size")
    text = shape_of(tmp_path, {**outer, "quantization_config": {"quant_method": "fp8"}})
    assert (text.kind, text.dtype, text.vocabulary) == ("gemma3_text", "float16", 262208)
    assert "without its other parts" in text.unread[0] and "float16: the fp8 of quantization_config" in text.unread[1]


def test_parts_share_heads_and_columns(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, SMALL, parts=4)
    assert (shape.heads, shape.kv_heads, shape.intermediate, shape.vocabulary) == (1, 1, 48, 50)
    empty = shape_of(tmp_path, {**SMALL, "head_dim": None, "num_key_value_heads": None})
    assert (empty.head, empty.kv_heads) == (160 // 4, 4), "null means the default, as Hugging Face writes it"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": None}, "config.json: the file names no model_type"),
        ({"model_type": "gpt2"}, "no regions for model_type 'gpt2'"),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number of 1 or more, not 'wide'"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number above 0, not '1e-5'"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0, not 0"),
        ({"vocab_size": None}, "vocab_size must be a whole number of 1 or more, not None"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
        ({"attention_bias": "yes"}, "attention_bias must be true or false, not 'yes'"),
        ({"num_key_value_heads": 3}, "4 heads of queries can not share 3 heads of keys equally"),
        ({"num_key_value_heads": 8}, "4 heads of queries can not share 8 heads of keys equally"),
        ({"head_dim": 33}, "head_dim 33 is odd"),
        ({"head_dim": None, "hidden_size": 162}, "hidden_size 162 can not be divided into 4 heads"),
        ({"model_type": "qwen3_moe", **EXPERTS, "num_experts_per_tok": 9}, "9 is more than the 8 experts"),
        ({"model_type": "qwen3_moe", **EXPERTS, "mlp_only_layers": [0, 1]}, "no layer has experts"),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, "layer_types must name each of the 2 layers"),
        ({"model_type": "qwen3", "layer_types": ["linear_attention"] * 2}, "'linear_attention' is not supported"),
        ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm true is not supported"),
        ({"model_type": "olmo", "clip_qkv": 8.0}, "clip_qkv 8.0 is not supported"),
        ({"model_type": "falcon", "alibi": True}, "alibi true is not supported"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention true is not"),
        ({"is_causal": False}, "is_causal false is not supported"),
        ({"model_type": "nemotron", "norm_eps": "0"}, "norm_eps must be a number above 0, not '0'"),
        ({"model_type": "qwen3_next"}, "'qwen3_next': its layers with linear attention"),
        (
            {"model_type": "clip", "text_config": {"model_type": "clip_text_model"}},
            "'clip_text_model': it is no decoder",
        ),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers must have a 0"),
        ({"model_type": "phi3", "partial_rotary_factor": 0}, "partial_rotary_factor must be a number above 0"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.3}, "head_dim 32 times partial_rotary_factor 0.3 is 9"),
        ({"model_type": "llama4_text", "moe_layers": [2]}, "moe_layers must be a list of numbers of the 2 layers"),
        ({**SOFT, "topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not supported"),
        ({**SOFT, "norm_topk_prob": True}, "norm_topk_prob True is not supported"),
        ({"num_attention_heads": 6, "num_key_value_heads": 3}, "3 heads of keys do not fit 2 equal parts"),
        ({"torch_dtype": "int4"}, "torch_dtype 'int4' is not supported"),
        (
            {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32},
            "num_attention_heads 3 can not be divided into 2 equal parts",
        ),
        ({**LATENT, "scoring_func": "softmax"}, "scoring_func 'softmax' is not supported"),
        ({**LATENT, "n_group": 3}, "n_routed_experts can not be divided into 3 equal groups"),
        ({**LATENT, "topk_group": 5}, "topk_group 5 is more than the 4 groups"),
        ({**LATENT, "num_experts_per_tok": 9}, "9 is more than the experts of 2 groups"),
        ({**LATENT, "first_k_dense_replace": 3}, "first_k_dense_replace must be a number of layers, not 3"),
        ({**LATENT, "rope_scaling": {"factor": "40"}}, "factor and mscale_all_dim of rope_scaling must be numbers"),
    ],
)
def test_a_config_that_describes_no_known_model_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        shape_of(tmp_path, {**SMALL, **change}, parts=2)
