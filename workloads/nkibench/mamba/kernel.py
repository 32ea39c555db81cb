"""State-space scan: for each tile of 128 channels, then each state, one scan in chunks that hand their state on."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    out = nl.ndarray((256, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    for tile in nl.affine_range(2):
        total = nl.ndarray((128, 7168), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for state in nl.affine_range(16):
            a_column = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=a_column, src=a[nl.ds(128 * tile, 128), nl.ds(state, 1)])
            carry = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=carry, value=0.0)
            for chunk in nl.sequential_range(7):
                delta_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                u_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                b_rows = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                c_rows = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                decay = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                drive = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                driven = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                scanned = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                weighted = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=delta_tile, src=delta[nl.ds(128 * tile, 128), nl.ds(1024 * chunk, 1024)])
                nisa.dma_copy(dst=u_tile, src=u[nl.ds(128 * tile, 128), nl.ds(1024 * chunk, 1024)])
                # A stride of 0 reads the one row of this state into all 128 partitions.
                nisa.dma_copy(dst=b_rows, src=b.ap(pattern=[[0, 128], [1, 1024]], offset=7168 * state + 1024 * chunk))
                nisa.dma_copy(dst=c_rows, src=c.ap(pattern=[[0, 128], [1, 1024]], offset=7168 * state + 1024 * chunk))
                nisa.activation(dst=decay, op=nl.exp, data=delta_tile, scale=a_column)
                nisa.tensor_tensor(dst=drive, data1=delta_tile, data2=u_tile, op=nl.multiply)
                nisa.tensor_tensor(dst=driven, data1=drive, data2=b_rows, op=nl.multiply)
                nisa.tensor_tensor_scan(
                    dst=scanned, data0=decay, data1=driven, initial=carry, op0=nl.multiply, op1=nl.add
                )
                nisa.tensor_copy(dst=carry, src=scanned[0:128, 1023:1024])
                nisa.tensor_tensor(dst=weighted, data1=scanned, data2=c_rows, op=nl.multiply)
                nisa.tensor_tensor(
                    dst=total[0:128, nl.ds(1024 * chunk, 1024)],
                    data1=total[0:128, nl.ds(1024 * chunk, 1024)],
                    data2=weighted,
                    op=nl.add,
                )
        nisa.dma_copy(dst=out[nl.ds(128 * tile, 128), 0:7168], src=total)
    return out
