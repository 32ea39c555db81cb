"""Modules that are exported in tests. Only a child process imports this file, because it needs PyTorch."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A causal transformer block with a mask that is a buffer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(48, 48)).view(1, 1, 48, 48))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 4, c // 4).transpose(1, 2) for part in self.qkv(self.norm(x)).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (c // 4) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
        out: Tensor = x + self.mlp(x)
        return out


class Images(nn.Module):
    """Convolutions of every kind, norms and pools."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4),
            nn.GroupNorm(2, 8),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.InstanceNorm2d(8, affine=True),
            nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d((3, 2)),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Recurrent(nn.Module):
    """Two layers of LSTM in both directions, then a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (state, _) = self.lstm(x)
        out, _ = self.gru(y.transpose(0, 1))
        return out, state


class Losses(nn.Module):
    """Losses of logits against class numbers and of two arrays, and the likeliest classes."""

    def forward(self, x: Tensor, classes: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        values, places = torch.topk(x, 3, dim=-1)
        return (
            F.cross_entropy(x, classes, label_smoothing=0.1),
            F.smooth_l1_loss(x, other),
            F.kl_div(F.log_softmax(x, -1), other.softmax(-1), reduction="batchmean"),
            F.triplet_margin_loss(x, other, x.flip(0)),
            values * x.gather(1, places),
        )


class Stores(nn.Module):
    """Stores in place, splits, cumulative sums, embeddings and a mixed type."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids).clone()
        x[:, 2:4] = 0.5
        a, b = x.chunk(2, dim=-1)
        a = a.cumsum(1)
        a.add_(b, alpha=2.0).clamp_(min=-1.0)
        return torch.cat([a.double().float(), torch.stack([a, b]).amax(0)], -1)


class Sorts(nn.Module):
    """Sorted values with their places, rows copied and added by number, and bits of integers."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        values, places = x.sort(-1, descending=True)
        copied = x.index_copy(0, y, z).index_add(0, y, z, alpha=2.0)
        return values, places, copied, x.argsort(stable=True, dim=0), (y << 3) ^ (y >> 1)


class Cached(nn.Module):
    """Stores a key of each sequence at its own position in the cache, and a row at one position for all of them."""

    def forward(self, keys: Tensor, key: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        held = keys.index_put((torch.arange(len(key)), position), key)
        return held, torch.ops.aten.index_put(keys, [None, position[:1]], key[:, None] + 1.0, True)


class Keeps(nn.Module):
    """Writes a row of its own buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.cache[2:3] = x[:1]
        return self.cache.sum(0)


class Borders(nn.Module):
    """Repeats elements at its borders."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = x[None, None]
        pad = nn.functional.pad
        return pad(x, (2, 1, 0, 3), "reflect"), pad(x, (1, 2, 3, 0), "replicate"), pad(x, (1, 2, 3, 1), "circular")


class Resized(nn.Module):
    """Interpolation between neighbors, to more and to fewer places."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        line = F.interpolate(x[0], size=15, mode="linear")
        more = F.interpolate(x, scale_factor=2, mode="bilinear")
        corners = F.interpolate(x, size=(11, 4), mode="bilinear", align_corners=True)
        by_factor = F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear")
        return line, more, corners, by_factor, F.interpolate(x[:, None], size=(3, 9, 5), mode="trilinear")


class Distances(nn.Module):
    """Distances between rows, by several norms."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        norms = [torch.cdist(x, y, p=p) for p in (1.0, 2.0, 3.5, float("inf"))]
        direct = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return *norms, direct, torch.cdist(x[0], x[0, :9]), torch.cdist(x, y[:1])


class Chosen(nn.Module):
    """Has a shape that depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        (places,) = torch.where(x[:, 0] > 0.0)
        return x[places]


class Unique(nn.Module):
    """A module that is not lowered."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class Drops(nn.Module):
    """A module that is random in training."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


class Draws(nn.Module):
    """A module whose class wants an argument."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Options(nn.Module):
    """A module whose forward has arguments that may be left out, with two names for one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(
        self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0, unread: Tensor | None = None
    ) -> Tensor:
        y: Tensor = self.second(self.first(x).tanh()) * scale + torch.eye(4, 8)
        return y if mask is None else y * mask


class Writes(nn.Module):
    """A module that writes its argument."""

    def forward(self, x: Tensor) -> Tensor:
        x[:, 1:3] = 0.0
        return x * 2.0


class Pairs(nn.Module):
    """A module that returns something that is no array."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x * 2.0, None


class Several(nn.Module):
    """A module with a list and a dict of arrays and further arrays, that returns a dict of a tuple and an array."""

    def forward(self, first: list[Tensor], named: dict[str, Tensor], *further: Tensor) -> dict[str, object]:
        return {"ends": (first[0] - first[1],), "sum": named["b"] * 3.0 + further[0] - 2.0 * further[1]}


def several() -> list[object]:
    """Return arguments of Several, of different sizes, so that mistaken places show. One of them is not read."""
    first = [torch.rand(4, 8), torch.randint(5, 9, (4, 8)).float()]
    return [first, {"a": torch.zeros(2), "b": torch.randn(4, 8)}, torch.rand(4, 8), torch.randn(4, 8)]


class Alone(nn.Module):
    """A module that returns a tuple of one array."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor]:
        y: Tensor = self.linear(x)
        return (y if self.inner is None else self.inner(y)[0],)


class Attention(nn.Module):
    """Causal attention with rotary positions; ``normed`` has a norm of each head, as Qwen3 does."""

    def __init__(self, width: int, normed: bool) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(width, 4 * 16, bias=False), nn.Linear(4 * 16, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, 2 * 16, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = (nn.RMSNorm(16, eps=1e-6) if normed else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape

        def turned(heads: Tensor) -> Tensor:
            first, second = heads.chunk(2, dim=-1)
            return heads * cos + torch.cat([-second, first], dim=-1) * sin

        q = turned(self.q_norm(self.q_proj(x).view(b, t, 4, 16)).transpose(1, 2))
        k = turned(self.k_norm(self.k_proj(x).view(b, t, 2, 16)).transpose(1, 2)).repeat_interleave(2, dim=1)
        v = self.v_proj(x).view(b, t, 2, 16).transpose(1, 2).repeat_interleave(2, dim=1)
        out: Tensor = self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return out


class Gated(nn.Module):
    """A layer with a gate."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Routed(nn.Module):
    """Experts, of which each token has two, with weights that sum to one."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(Gated(width, inner) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        shares = (F.one_hot(chosen, 4).to(x.dtype) * weights[..., None]).sum(-2)
        out = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            out = out + expert(x) * shares[..., place : place + 1]
        return out


class Decoder(nn.Module):
    """Two layers of Llama, of Qwen3 or of Qwen3 with experts, with what comes before and after them."""

    def __init__(self, kind: str = "llama") -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 48)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "input_norm": nn.RMSNorm(48, eps=1e-6),
                    "self_attn": Attention(48, kind != "llama"),
                    "post_norm": nn.RMSNorm(48, eps=1e-6),
                    "mlp": Routed(48, 40) if kind == "qwen3_moe" else Gated(48, 80),
                }
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.RMSNorm(48, eps=1e-6), nn.Linear(48, 50, bias=False)
        self.register_buffer("rates", 100.0 ** (-torch.arange(0, 16, 2) / 16), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        angles = torch.arange(ids.shape[1])[:, None] * self.rates
        cos, sin = (torch.cat([one, one], dim=-1) for one in (angles.cos(), angles.sin()))
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer["self_attn"](layer["input_norm"](x), cos, sin)
            x = x + layer["mlp"](layer["post_norm"](x))
        out: Tensor = self.head(self.norm(x))
        return out


class Casts(nn.Module):
    """A module that names float32, holds a tensor that is no buffer, and norms small values without an eps."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.table = torch.arange(1, 9).float() ** 0.5

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x * 1e-3)
        return torch.einsum("ab,b->a", y.float(), self.table) + torch.ones(4, dtype=torch.float32)


class Ends(nn.Module):
    """A module that prints past Python, then ends its process."""

    def forward(self, x: Tensor) -> Tensor:
        os.write(1, b"not an answer\n")
        os._exit(3)


def get_inputs() -> list[Tensor]:
    """Return arguments for the modules without arguments of their own."""
    return [torch.rand(4, 16).triu() * 2.0, torch.randint(0, 16, (4,)), torch.randn(4, 16)]


class Turned(nn.Module):
    """Rotary positions by complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(4, 4), torch.arange(16.0).reshape(4, 4)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.reshape(4, 4, 2)) * self.turns).flatten(1)


class Bags(nn.Module):
    """Sums and means of the rows of bags, of one length and of lengths that starts give."""

    def __init__(self) -> None:
        super().__init__()
        self.means = nn.EmbeddingBag(20, 8, mode="mean")
        self.sums = nn.EmbeddingBag(20, 8, mode="sum")

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.means(x), self.sums(y, z)


class Wholes(nn.Module):
    """Arithmetic of whole numbers, and of whole numbers with narrow floats."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x // 3, torch.div(x - 5, 4, rounding_mode="trunc"), x % 5, x * y, torch.stack([x, y])


class Inverse(nn.Module):
    """The inverse of a matrix."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.inv(x)


class Empty(nn.Module):
    """An output without elements."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1.0, x[:, :0]


class Fixed(nn.Module):
    """An output that depends on no argument."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((3,), 2.5)


class Deepening(nn.Module):
    """Layers whose rates the class reads from a tensor while it is made, as vision models do."""

    def __init__(self) -> None:
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(rate), nn.Tanh()) for rate in rates)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Branches(nn.Module):
    """A branch that depends on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2.0 if x.sum().item() > 0 else x


class Decides(nn.Module):
    """A branch on the truth of an array."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2.0
        return x


class Reads(nn.Module):
    """A number that is read from an array."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.max().item()


class Nested(nn.Module):
    """A graph inside of the graph."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, lambda x: x + 1.0, lambda x: x - 1.0, (x,))
        return found


class NoModule:
    """A class that is no module."""


class Turns(nn.Module):
    """Cosines of rotary positions, which are counted in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(24).float(), persistent=False)
        self.rates = 10000.0 ** (torch.arange(0, 8, 2).float() / -8)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.outer(self.places, self.rates).cos()


class Ordered(nn.Module):
    """Values by their rank along an axis, their places among sorted bounds, and extremes so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bounds", torch.tensor([-1.0, 0.25, 0.5]))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        rows = x.sort(-1).values
        found = [*x.median(1), x.median(0, keepdim=True).values, x.median(), *x.kthvalue(3, 0), torch.mode(y, 1).values]
        found += [torch.searchsorted(rows, x.flip(1), right=True), torch.bucketize(x, self.bounds)]
        return *found, *x.cummax(1), *x.cummin(0), x.logcumsumexp(1), torch.fmax(x, x.flip(0))


class Combined(nn.Module):
    """Values at equal positions by their greatest, least and mean; stores by a mask and on a diagonal."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        kinds = [("amax", True), ("amin", False), ("mean", True), ("mean", False), ("sum", False)]
        found = [x.scatter_reduce(1, y, z, kind, include_self=own) for kind, own in kinds]
        found += [x.index_reduce(0, y[:, 0], z, "amax"), x.index_reduce(0, y[:, 0], z, "mean", include_self=False)]
        found += [x.masked_scatter(z > 0.0, z), x.put(y, z, accumulate=True), torch.diag_embed(x[0], -1)]
        found += [torch.diag_embed(x, 2, 0, 2), x.diagonal_scatter(z[:3, 0], 5), x.as_strided((3, 2, 2), (8, 3, 1), 1)]
        return tuple(found)


class Spectra(nn.Module):
    """Fourier transforms, there and back, and arithmetic of complex numbers."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        waves = torch.fft.rfft(x, dim=1, norm="ortho")
        plane = torch.fft.fft2(x) / torch.complex(x, y).exp()
        turned = torch.view_as_complex(x.reshape(4, 4, 2)) * torch.polar(y[:, :4] ** 2, y[:, 4:])
        sums = (turned.conj() - 2.0 * turned.flip(0)).sum(-1, keepdim=True) + y[:, :1]
        mixed = torch.stack([plane, plane.T.reshape(4, 8)]).transpose(-1, 0)[1:, :, -1]
        odd = torch.fft.irfft(torch.fft.rfft(x[:, :7]) * torch.fft.rfft(y[:, :7]), n=7)
        back = torch.fft.irfft(waves * waves, n=8, dim=1), odd, torch.fft.ifft(plane, dim=0).imag
        product = torch.complex(x, y) @ turned.T.reshape(8, 2)
        return *back, waves.abs(), torch.view_as_real(turned), sums.real, mixed.angle(), torch.view_as_real(product)


class Sampled(nn.Module):
    """Images at places between their elements, resized by neighbors and without aliases, pooled, and put back."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found = [
            F.grid_sample(x, y, mode, border, align_corners=False)
            for mode, border in (("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection"))
        ]
        found += [F.interpolate(x, size=(11, 5), mode=mode) for mode in ("nearest", "nearest-exact")]
        found += [F.interpolate(x, scale_factor=0.5), F.interpolate(x, scale_factor=3)]
        found += [F.interpolate(x, size=(3, 9), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")]
        found += [F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)]
        most, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        found += [places, F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:])]
        found.append(F.fold(F.unfold(x, (3, 2), padding=1, stride=(1, 2)), x.shape[2:], (3, 2), 1, 1, (1, 2)))
        return (
            *found,
            F.pdist(x[0, 0]),
            F.bilinear(x, most[..., :1, :].expand(2, 3, 7, 3), x[:, :, :6, :3].reshape(6, 6, 3)),
        )


class Weighted(nn.Module):
    """Losses with weights of classes, without some classes, and of smoothed probabilities."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        w = z[0].abs()
        found = [F.cross_entropy(x, y, w, reduction=kind) for kind in ("none", "mean", "sum")]
        found += [F.cross_entropy(x, y, w, ignore_index=2, label_smoothing=0.1), F.cross_entropy(x, y, ignore_index=1)]
        found += [F.cross_entropy(x, z.softmax(1), w, label_smoothing=0.1), F.cross_entropy(x[0], y[0])]
        return *found, F.binary_cross_entropy_with_logits(x, z.sigmoid(), z.abs(), pos_weight=w)
