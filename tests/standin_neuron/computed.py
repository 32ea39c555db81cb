"""A kernel as acceld's own simulator reads it, for compilers and runtimes of the stand-in that compute what it says."""

import base64
import os


def program(func, arrays, scalars, *, chip, lnc, grid=(), api="nki"):
    """Return the kernel's program in base64. SyntaxError with file and line, as the compilers print it, if the kernel
    can not be traced.
    """
    from acceld.nki.errors import KernelFailure
    from acceld.nki.frontend.tracing import TensorSpec, trace
    from acceld.nki.ir.codec import encode

    path = func.__code__.co_filename
    arguments = [TensorSpec(tuple(one.shape), one.dtype.name) for one in arrays]
    with open(path) as file:
        text = file.read()
    try:
        traced = trace(
            text,
            [*arguments, *scalars.values()],
            filename=os.path.basename(path),
            entry=func.__name__,
            grid=grid,
            lnc=lnc,
            chip=chip,
            api=api,
        )
    except KernelFailure as error:
        raise SyntaxError(f'File "{path}", line {error.line}\n{error.message}') from None
    return base64.b64encode(encode(traced)).decode()


def target():
    """Return chip and LNC as the documented variables name them. ValueError for a chip that the package nki does not
    know.
    """
    chip, lnc = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE"), int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1"))
    if chip not in ("trn2", "trn3"):
        raise ValueError("this compiler knows trn2 and trn3")
    return chip, lnc
