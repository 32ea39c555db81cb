"""A matrix product, and a second kernel that adds a bias and applies ReLU. The rule for epilogues joins the kernels."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m_size, n_size, k_size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, k_size, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x = tl.load(a + m[:, None] * k_size + k[None, :], mask=(m[:, None] < m_size) & (k[None, :] < k_size), other=0.0)
        y = tl.load(b + n[None, :] * k_size + k[:, None], mask=(n[None, :] < n_size) & (k[:, None] < k_size), other=0.0)
        acc += tl.dot(x, y)
    inside = (m[:, None] < m_size) & (n[None, :] < n_size)
    tl.store(c + m[:, None] * n_size + n[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def bias_relu(x, bias, out, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    y = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    # the same for every row
    y += tl.load(bias + column, mask=column < columns, other=0.0)[None, :].to(tl.float32)
    tl.store(out + row[:, None] * columns + column[None, :], tl.maximum(y, 0.0).to(out.dtype.element_ty), mask=inside)


def run(A, B, bias):
    m_size, k_size = A.shape
    n_size = B.shape[0]
    product = torch.empty((m_size, n_size), dtype=A.dtype, device=A.device)
    grid = (triton.cdiv(m_size, 32), triton.cdiv(n_size, 32))
    matmul[grid](A, B, product, m_size, n_size, k_size, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, num_warps=4)
    C = torch.empty((m_size, n_size), dtype=A.dtype, device=A.device)
    bias_relu[grid](product, bias, C, m_size, n_size, HEIGHT=32, WIDTH=32, num_warps=8)
    return C
