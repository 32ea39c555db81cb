"""A mixture of experts with the experts of one GPU, routed in groups, weights and tokens scaled by blocks."""

import numpy as np

GROUPS, KEPT_GROUPS, TOP = 8, 4, 8


def forward(logits, bias, hidden, hidden_scale, gemm1, gemm1_scale, gemm2, gemm2_scale, offset, scaling):
    """output[t] = sum over local experts e of w[t, e] W2_e (silu(gate) up) with (up, gate) = W1_e x[t].

    w are sigmoids of the logits of the 8 chosen experts, as shares of their sum, times ``scaling``. Chosen are the
    greatest sigmoid + bias out of the 4 groups whose two greatest have the greatest sum.
    """
    wide = np.float64 if hidden.dtype == np.float64 else np.float32
    with np.errstate(over="ignore"):
        weights = wide(scaling) * _shares(logits.astype(wide), bias.astype(wide))
        tokens = hidden.astype(wide) * np.repeat(hidden_scale.astype(wide), hidden.shape[1] // len(hidden_scale), 0).T
        output = np.zeros(hidden.shape, wide)
        for expert in range(len(gemm1)):
            mine = np.flatnonzero(weights[:, offset + expert])
            both = tokens[mine] @ _dequantized(gemm1[expert], gemm1_scale[expert], wide).T
            up, gate = np.split(both, 2, axis=1)
            result = (gate / (1 + np.exp(-gate)) * up) @ _dequantized(gemm2[expert], gemm2_scale[expert], wide).T
            output[mine] += result * weights[mine, offset + expert, None]
    return output


def _shares(logits, bias):
    """Return the weight of each expert for each token; zero for experts that are not chosen."""
    tokens, experts = logits.shape
    scores = 1 / (1 + np.exp(-logits))
    grouped = (scores + bias).reshape(tokens, GROUPS, -1)
    strength = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    kept = np.argsort(-strength, axis=1, kind="stable")[:, :KEPT_GROUPS]
    allowed = np.full(grouped.shape, -np.inf)
    np.put_along_axis(allowed, kept[:, :, None], 0.0, axis=1)
    chosen = np.argsort(-(grouped + allowed).reshape(tokens, experts), axis=1, kind="stable")[:, :TOP]
    shares = np.zeros_like(scores)
    np.put_along_axis(shares, chosen, np.take_along_axis(scores, chosen, axis=1), axis=1)
    return shares / (shares.sum(axis=1, keepdims=True) + scores.dtype.type(1e-20))


def _dequantized(weights, scale, wide):
    rows, columns = (size // blocks for size, blocks in zip(weights.shape, scale.shape, strict=True))
    return weights.astype(wide) * np.repeat(np.repeat(scale.astype(wide), rows, 0), columns, 1)


def forward_torch(logits, bias, hidden, hidden_scale, gemm1, gemm1_scale, gemm2, gemm2_scale, offset, scaling):
    """The same on tensors, in the dtype of the scales."""
    wide = hidden_scale.dtype
    scores = logits.to(wide).sigmoid()
    grouped = (scores + bias.to(wide)).unflatten(1, (GROUPS, -1))
    kept = grouped.topk(2, dim=2).values.sum(dim=2).topk(KEPT_GROUPS, dim=1).indices
    closed = grouped.new_ones(grouped.shape[:2]).scatter(1, kept, 0.0).bool()
    chosen = grouped.masked_fill(closed[:, :, None], float("-inf")).flatten(1).topk(TOP, dim=1).indices
    shares = scores.new_zeros(scores.shape).scatter(1, chosen, scores.gather(1, chosen))
    weights = scaling * shares / (shares.sum(dim=1, keepdim=True) + 1e-20)
    block = hidden.shape[1] // hidden_scale.shape[0]
    tokens = hidden.to(wide) * hidden_scale.repeat_interleave(block, 0).T
    output = tokens.new_zeros(tokens.shape)
    for expert in range(gemm1.shape[0]):
        mine = weights[:, offset + expert].nonzero().squeeze(1)
        first = gemm1[expert].to(wide) * gemm1_scale[expert].repeat_interleave(block, 0).repeat_interleave(block, 1)
        second = gemm2[expert].to(wide) * gemm2_scale[expert].repeat_interleave(block, 0).repeat_interleave(block, 1)
        up, gate = (tokens[mine] @ first.T).chunk(2, dim=1)
        output[mine] += (gate * gate.sigmoid() * up) @ second.T * weights[mine, offset + expert, None]
    return output
