"""A matrix product, one program for each tile of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m_size, n_size, k_size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    tile_m = tl.program_id(0)
    tile_n = tl.program_id(1)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, k_size, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + m[:, None] * k_size + k[None, :], mask=(m[:, None] < m_size) & (k[None, :] < k_size), other=0.0
        )
        right = tl.load(
            b + n[None, :] * k_size + k[:, None], mask=(n[None, :] < n_size) & (k[:, None] < k_size), other=0.0
        )
        acc += tl.dot(left, right)
    tl.store(
        c + m[:, None] * n_size + n[None, :],
        acc.to(c.dtype.element_ty),
        mask=(m[:, None] < m_size) & (n[None, :] < n_size),
    )


def run(A, B):
    m_size, k_size = A.shape
    n_size = B.shape[0]
    C = torch.empty((m_size, n_size), dtype=A.dtype, device=A.device)
    grid = (triton.cdiv(m_size, 64), triton.cdiv(n_size, 64))
    matmul[grid](A, B, C, m_size, n_size, k_size, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4)
    return C
