"""Run a workload's kernel under Triton's interpreter, in float32, because the interpreter has no bfloat16 products."""

import importlib.util
import itertools

import numpy as np
from torch_on_numpy import interpreting

from acceld.workloads import make_inputs, reference_outputs

_NUMBER = itertools.count()


def error_of(text, workload, folder, monkeypatch, *, seed=3, distribution="own"):
    """Return greatest relative L2 error of the kernel in ``text`` over the outputs, against the float64 reference."""
    inputs = make_inputs(workload, seed, distribution)
    expected = reference_outputs(workload, inputs)
    outputs = outputs_of(text, workload.entry, inputs, folder, monkeypatch)
    assert len(outputs) == len(expected)
    errors = []
    for found, want in zip(outputs, expected, strict=True):
        assert found.shape == want.shape and np.isfinite(found).all()
        errors.append(np.linalg.norm(found - want) / np.linalg.norm(want))
    return max(errors)


def outputs_of(text, entry, inputs, folder, monkeypatch):
    """Return the outputs of the kernel in ``text`` for ``inputs``, as arrays of float64."""
    path = folder / f"kernel_{next(_NUMBER)}.py"
    path.write_text(text, encoding="utf-8")
    with interpreting(monkeypatch) as torch:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        given = [one if not isinstance(one, np.ndarray) else torch.tensor(_wide(one)) for one in inputs]
        returned = getattr(module, entry)(*given)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    return [one.numpy().astype(np.float64) for one in outputs]


def _wide(array):
    return array if array.dtype.kind in "iub" else array.astype(np.float32)
