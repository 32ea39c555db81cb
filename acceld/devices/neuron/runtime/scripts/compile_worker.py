"""Compile one kernel from shapes to a NEFF, under the interpreter that has the Neuron compiler.

One record in, one record out, then the process ends. Request: ``text``, ``filename``, ``closure``, ``entry``,
``api`` (``nki_legacy`` or ``nki``), ``grid``, ``lnc``, ``target``, ``flags``, ``arguments`` (name, dtype, shape),
``scalars``, ``folder`` (empty, private) and ``device_pattern``. Reply: ``ok``, ``route``, ``api_version``,
``compiler_version`` and the NEFF as bytes; or ``ok: false``, ``kind`` (``kernel``, ``missing``, ``protocol``,
``devices``) and ``message``. A request ``{"op": "hello"}`` tells versions only.

The kernel's own Python runs in this process, so nothing it answers is trusted further than a NEFF that is checked on
data later. Devices are hidden first; where that is impossible and a device is visible, nothing is compiled.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import confine  # type: ignore[import-not-found,unused-ignore]
import frames  # type: ignore[import-not-found,unused-ignore]

NEFF = "kernel.neff"


class MissingTool(Exception):
    """The interpreter lacks what a request needs."""


def version_of(distribution: str) -> str:
    """Version of an installed distribution, empty where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def hello() -> dict[str, Any]:
    """Return the versions of this interpreter's packages."""
    return {
        "ok": True,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "compiler_version": version_of("neuronx-cc"),
        "nki_version": version_of("nki"),
        "numpy_version": version_of("numpy"),
    }


def find_entry(module: Any, entry: str) -> Any:
    """The kernel function, without the decorator that would run it."""
    function = getattr(module, entry, None)
    if function is None:
        raise AttributeError(f"the kernel's file has no function {entry!r}")
    return function


def arrays(arguments: list[dict[str, Any]]) -> list[Any]:
    """Arrays of zeros in the shapes asked for: only shapes and dtypes matter while compiling."""
    try:
        import numpy
    except ImportError as error:
        raise MissingTool("the compiler's interpreter has no numpy") from error
    return [numpy.zeros(one["shape"], dtype=dtype_of(one["dtype"])) for one in arguments]


def dtype_of(name: str) -> Any:
    """A numpy dtype; bfloat16 and the fp8 kinds come from ml_dtypes."""
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError) as error:
        raise MissingTool(f"dtype {name} needs the package ml_dtypes beside the compiler") from error


def load(request: dict[str, Any], folder: Path) -> Any:
    """Write the kernel and its closure to ``folder`` and import it. Errors of its own code pass through."""
    for name, text in sorted(request.get("closure", {}).items()):
        path = folder / name
        if folder.resolve() not in path.resolve().parents:
            raise ValueError(f"a module of the kernel lies outside its folder: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = folder / Path(request["filename"]).name
    path.write_text(request["text"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, str(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def compile_legacy(request: dict[str, Any], function: Any, folder: Path) -> tuple[str, Path]:
    """``neuronxcc.nki.baremetal`` with devices hidden: it writes the NEFF, then fails to run it."""
    nki = importlib.import_module("neuronxcc.nki")
    neff = folder / NEFF
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    kernel = nki.baremetal(
        getattr(function, "func", function),
        save_neff_name=str(neff),
        additional_compile_opt=" ".join(request["flags"]),
        artifacts_dir=str(artifacts),
    )
    if request["grid"]:
        kernel = kernel[tuple(request["grid"])]
    try:
        kernel(*arrays(request["arguments"]), **request["scalars"])
    except MissingTool:
        raise
    except Exception:  # running it on a machine without a core may fail; a NEFF that was written is all that is wanted
        if not neff.is_file():
            raise
    return "neuronxcc.nki.baremetal", neff


def compile_current(request: dict[str, Any], function: Any, folder: Path) -> tuple[str, Path]:
    """The compiler's driver where this version has it, else the folder-of-artifacts form that is documented."""
    artifacts = folder / "artifacts"
    artifacts.mkdir(exist_ok=True)
    raw = getattr(function, "func", function)
    inputs = arrays(request["arguments"])
    try:
        framework = importlib.import_module("nki.framework.compiled")
    except ImportError:
        framework = None
    if framework is not None:
        kernel = framework.CompileKernel(func=raw, artifacts_dir=str(artifacts), _enable_simulation=True)
        kernel(*inputs, **request["scalars"])
        return "nki.framework.compiled", artifacts / NEFF
    try:
        frontend = importlib.import_module("nki.compiler.frontend")
        driver = importlib.import_module("nki.compiler.ncc_driver")
    except ImportError:
        frontend = None
    if frontend is not None:
        named = {one["name"]: array for one, array in zip(request["arguments"], inputs)}  # noqa: B905
        named.update(request["scalars"])
        traced = frontend.ParserFrontend().compile(
            raw, inputs=named, target=request["target"], lnc=request["lnc"], artifacts_dir=str(artifacts)
        )
        options = driver.CompileOptions(
            target=request["target"],
            lnc=request["lnc"],
            output_path=str(artifacts / NEFF),
            artifacts_dir=str(artifacts),
            neuronx_cc_args=tuple(request["flags"]),
        )
        return "nki.compiler.frontend", Path(driver.CompiledKernel.from_frontend(traced, options).neff_path)
    launched = function[request["lnc"]] if request["lnc"] > 1 else function
    neff = Path(os.environ["NKI_ARTIFACTS_DIR"]) / NEFF
    try:
        launched(*inputs, **request["scalars"])
    except Exception:  # running it on a machine without a core may fail; a NEFF that was written is all that is wanted
        if not neff.is_file():
            raise
    return "nki.jit with NKI_ARTIFACTS_DIR", neff


def answer(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Reply to one request."""
    if request.get("op") == "hello":
        return hello(), b""
    if request.get("op") != "compile":
        return {"ok": False, "kind": "protocol", "message": "unknown request {!r}".format(request.get("op"))}, b""
    visible = confine.hide(request["device_pattern"])
    if visible:
        text = "devices can not be hidden from the compiler: {}".format(", ".join(visible))
        return {"ok": False, "kind": "devices", "message": text}, b""
    folder = Path(request["folder"])
    package = "neuronxcc.nki" if request["api"] == "nki_legacy" else "nki"
    try:
        importlib.import_module(package)
    except ImportError as error:
        return {"ok": False, "kind": "missing", "message": f"{package} can not be imported: {error}"}, b""
    try:
        function = find_entry(load(request, folder), request["entry"])
        compile_it = compile_legacy if request["api"] == "nki_legacy" else compile_current
        route, neff = compile_it(request, function, folder)
        data = neff.read_bytes()
    except MissingTool as error:
        return {"ok": False, "kind": "missing", "message": str(error)}, b""
    except (Exception, SystemExit):  # noqa: BLE001 whatever the kernel's own Python raises is the kernel's failure
        return {"ok": False, "kind": "kernel", "message": traceback.format_exc()[-20000:]}, b""
    return dict(hello(), route=route), data


def main() -> None:
    """Serve one request."""
    incoming, outgoing = confine.take_pipes()
    confine.end_with_parent(int(os.environ.get("ACCELD_PARENT", "0")))
    got = frames.read(incoming)
    if got is None:
        return
    record, data = answer(got[0])
    frames.write(outgoing, record, data)
    outgoing.close()
    os._exit(0)


if __name__ == "__main__":
    main()
