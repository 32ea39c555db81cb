"""Compile one kernel from shapes to a NEFF, or run it in AWS's simulator, under the interpreter that has the
Neuron compiler.

The process reads one record, writes one record, and ends. The record names the operation in ``op``:

- ``compile`` has ``text``, ``filename``, ``closure`` (texts of the modules that the kernel imports), ``entry``,
  ``api`` (``nki_legacy`` or ``nki``), ``grid``, ``lnc``, ``target``, ``flags``, ``arguments`` (name, dtype, shape),
  ``scalars``, ``folder`` (empty, private), ``device_pattern`` (which device files to hide) and ``route`` (a key
  of :data:`ROUTES`, a way to call the compiler; empty: the first that this compiler has). The reply has ``route``,
  ``outputs`` (names, if the compiler reports them), ``signatures`` of the functions that were called, versions, and the
  NEFF as bytes.
- ``simulate`` has ``values`` (a number, or an array's dtype, shape and file) in place of ``arguments``. The bytes of
  the reply are the outputs.
- ``hello`` gets the versions.
- ``facilities`` gets the system facilities that this process can not use.

A reply has ``ok: true``, or ``ok: false`` with ``kind`` (``kernel``, ``missing``, ``route``, ``protocol``,
``devices``) and ``message``.

The kernel's own Python runs in this process, so the reply is not trusted: the NEFF is checked on data later.
Devices are hidden first. If a device is still visible, nothing is compiled or simulated.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# These modules lie beside this file, where a type checker does not look.
import confine  # type: ignore[import-not-found,unused-ignore]  # beside this file
import facilities  # type: ignore[import-not-found,unused-ignore]  # beside this file
import frames  # type: ignore[import-not-found,unused-ignore]  # beside this file

NEFF = "kernel.neff"


class MissingTool(Exception):
    """Raised if the interpreter lacks a tool that the request needs."""


class MissingRoute(Exception):
    """Raised if this version of the compiler does not have a route."""


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution; an empty text if the distribution is not installed."""
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
    """Return the object named ``entry`` in the kernel's module, still with its decorator.

    Raise AttributeError if the module has no such object.
    """
    function = module
    for part in entry.split("."):  # the entry of a kernel in a class is Class.name
        function = getattr(function, part, None)
    if function is None:
        raise AttributeError(f"the kernel's file has no function {entry!r}")
    return function


def arrays(arguments: list[dict[str, Any]]) -> list[Any]:
    """Return arrays of zeros in the requested shapes and dtypes. Values do not matter to the compiler."""
    try:
        import numpy
    except ImportError as error:
        raise MissingTool("the compiler's interpreter has no numpy") from error
    return [numpy.zeros(one["shape"], dtype=dtype_of(one["dtype"])) for one in arguments]


def dtype_of(name: str) -> Any:
    """Return a numpy dtype by its name; bfloat16 and the fp8 types come from ml_dtypes."""
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
    """Write the kernel's file and the modules of its closure to ``folder``, and return the imported module.

    An error of the kernel's own code is not caught.
    """
    for name, text in sorted(request.get("closure", {}).items()):
        path = folder / name
        if folder.resolve() not in path.resolve().parents:
            raise ValueError(f"a module of the kernel lies outside its folder: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    folder.mkdir(exist_ok=True)
    path = folder / Path(request["filename"]).name
    path.write_text(request["text"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, str(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class CompileInputs:
    """Inputs of a compile route: the request, the kernel's function with and without its decorator, folders and
    arrays.
    """

    def __init__(self, request: dict[str, Any], function: Any, folder: Path) -> None:
        self.request, self.decorated, self.folder = request, function, folder
        self.raw = getattr(function, "func", function)
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir(exist_ok=True)
        self.inputs = arrays(request["arguments"])
        self.outputs: list[str] = []
        """Names of the outputs in the kernel's order, if the compiler reports them."""

    def neff(self, path: Any) -> Path:
        """Return ``path`` if there is a NEFF, else the newest NEFF in the folder.

        Raise FileNotFoundError if the folder has no NEFF.
        """
        if Path(path).is_file():
            return Path(path)
        there = sorted(self.folder.rglob("*.neff"), key=lambda one: one.stat().st_mtime)
        if not there:
            raise FileNotFoundError(f"the compiler wrote no NEFF: neither {path} nor another file")
        return there[-1]

    def written(self, call: Callable[[], Any], path: Path) -> Path:
        """Call a function that compiles a kernel and then wants to run it. Return the path of the NEFF.

        Without a visible core the run fails, but the NEFF has been written before. If there is no NEFF, the
        function's error is raised.
        """
        try:
            call()
        except Exception:  # a run without a core may raise any error, which is raised again if there is no NEFF
            if not path.is_file() or not path.stat().st_size:
                raise
        return self.neff(path)


def named(module: str, name: str) -> Any:
    """Return the object ``name`` of a module, and record its signature. Raise MissingRoute if this version
    lacks the object.
    """
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise MissingRoute(f"{module} has no {name} here: {error}") from error
    SIGNATURES[f"{module}.{name}"] = signature_of(found)
    return found


def signature_of(function: Any) -> str:
    """Return a callable's signature as text; an empty text if Python can not determine it."""
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return ""


def taken(function: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return those of ``options`` that this version of a callable accepts; all of them if Python can not find out."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return options
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def legacy(name: str) -> Callable[[CompileInputs], Path]:
    """Return the compile route that uses the decorator ``neuronxcc.nki.<name>``.

    The decorated kernel writes its NEFF and then looks for a core.
    """

    def compile_it(bench: CompileInputs) -> Path:
        request, neff = bench.request, bench.folder / NEFF
        decorator = named("neuronxcc.nki", name)
        options = {"artifacts_dir": str(bench.artifacts), "warmup": 1, "iters": 1}
        kernel = decorator(
            bench.raw,
            save_neff_name=str(neff),
            additional_compile_opt=" ".join(request["flags"]),
            **taken(decorator, options),
        )
        if request["grid"]:
            kernel = kernel[tuple(request["grid"])]
        return bench.written(lambda: kernel(*bench.inputs, **request["scalars"]), neff)

    return compile_it


def framework(bench: CompileInputs) -> Path:
    """Compile by the class ``nki.framework.compiled.CompileKernel``, and return the path of the NEFF.

    The class is private, and its options differ between versions. Only options that it accepts are passed.
    """
    request = bench.request
    make = named("nki.framework.compiled", "CompileKernel")
    options = {"_enable_simulation": True, "target": request["target"], "platform_target": request["target"]}
    options.update(lnc=request["lnc"], logical_nc_config=request["lnc"])
    kernel = make(func=bench.raw, artifacts_dir=str(bench.artifacts), **taken(make, options))
    kernel(*bench.inputs, **request["scalars"])
    return bench.neff(bench.artifacts / NEFF)


def frontend(*, disabled: bool) -> Callable[[CompileInputs], Path]:
    """Return the compile route that calls the compiler's frontend and driver itself.

    If ``disabled`` is True, the optimizations of the compiler's backend are turned off.
    """

    def compile_it(bench: CompileInputs) -> Path:
        request = bench.request
        front = front_end_class()()
        make_options = named("nki.compiler.ncc_driver", "CompileOptions")
        kernel_class = named("nki.compiler.ncc_driver", "CompiledKernel")
        inputs = {one["name"]: array for one, array in zip(request["arguments"], bench.inputs)}  # noqa: B905  Python 3.8 has no strict=
        inputs.update(request["scalars"])
        where = {"target": request["target"], "lnc": request["lnc"], "artifacts_dir": str(bench.artifacts)}
        traced = front.compile(bench.raw, inputs=inputs, **taken(front.compile, where))
        where.update(output_path=str(bench.artifacts / NEFF), neuronx_cc_args=tuple(request["flags"]))
        options = make_options(**taken(make_options, where))
        if disabled:
            if not hasattr(options, "disable_backend_optimizations"):
                raise MissingRoute("CompileOptions has no disable_backend_optimizations here")
            options = options.disable_backend_optimizations() or options
        kernel = kernel_class.from_frontend(traced, options)
        bench.outputs = [str(getattr(one, "name", "")) for one in getattr(kernel, "output_specs", None) or ()]
        return bench.neff(getattr(kernel, "neff_path", bench.artifacts / NEFF))

    return compile_it


def front_end_class() -> Any:
    """Return the frontend class that the compiler itself uses when a kernel is called.

    The compiler's function ``resolve_frontend_cls`` names the class. Versions without that function have only one
    class, ``ParserFrontend``. Version 0.7 has no such class.
    """
    try:
        return named("nki.compiler.frontend", "resolve_frontend_cls")()
    except MissingRoute:
        return named("nki.compiler.frontend", "ParserFrontend")


def jitted(bench: CompileInputs) -> Path:
    """Compile by the documented call of a jitted kernel with numpy arrays, and return the path of the NEFF.

    The call writes the NEFF to the artifacts folder, and then looks for a core.
    """
    request, function = bench.request, bench.decorated
    SIGNATURES["nki.jit"] = signature_of(getattr(importlib.import_module("nki"), "jit", None))
    launched = function[request["lnc"]] if request["lnc"] > 1 and hasattr(function, "__getitem__") else function
    neff = Path(os.environ["NKI_ARTIFACTS_DIR"]) / NEFF
    return bench.written(lambda: launched(*bench.inputs, **request["scalars"]), neff)


ROUTES: dict[str, dict[str, Callable[[CompileInputs], Path]]] = {
    "nki_legacy": {
        "neuronxcc.nki.baremetal": legacy("baremetal"),
        "neuronxcc.nki.benchmark": legacy("benchmark"),
    },
    "nki": {
        "nki.framework.compiled": framework,
        "nki.compiler.frontend": frontend(disabled=False),
        "nki.compiler.frontend, backend optimizations disabled": frontend(disabled=True),
        "nki.jit with NKI_ARTIFACTS_DIR": jitted,
    },
}
"""Compile routes by API, in the order they are tried. The routes of ``nki``, except ``nki.jit``, use private functions.
"""
SIGNATURES: dict[str, str] = {}
"""Signatures of the compiler's functions that this process looked up, by name."""


def compiled(request: dict[str, Any], folder: Path) -> tuple[dict[str, Any], bytes]:
    """Compile by the route that the request names; if it names none, by the first route that this version of the
    compiler has.

    Return the reply and the NEFF. Raise MissingRoute if this version lacks the route, or has no route at all.
    """
    function = find_entry(load(request, folder), request["entry"])
    routes = ROUTES[request["api"]]
    missing = []
    for name in [request["route"]] if request.get("route") else list(routes):
        try:
            bench = CompileInputs(request, function, folder)
            path = routes[name](bench)
        except MissingRoute as error:
            missing.append(f"{name}: {error}")
            continue
        return dict(hello(), route=name, signatures=SIGNATURES, outputs=bench.outputs), path.read_bytes()
    raise MissingRoute("; ".join(missing))


def simulated(request: dict[str, Any], folder: Path) -> tuple[dict[str, Any], bytes]:
    """Run a kernel in AWS's simulator on the arrays in ``folder``, and return the reply and the outputs' bytes in
    order.
    """
    import warnings

    import numpy

    function = find_entry(load(request, folder / "source"), request["entry"])
    simulate = named("nki", "simulate")
    values = [
        one["value"]
        if "value" in one
        else numpy.fromfile(str(folder / one["file"]), dtype_of(one["dtype"])).reshape(one["shape"])
        for one in request["values"]
    ]
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        found = simulate(function[request["lnc"]] if request["lnc"] > 1 else function)(*values)
    outputs = [numpy.ascontiguousarray(one) for one in (found if isinstance(found, (tuple, list)) else (found,))]
    record = {
        "signatures": SIGNATURES,
        "outputs": [{"dtype": one.dtype.name, "shape": list(one.shape)} for one in outputs],
        "warnings": [str(one.message)[:500] for one in noted[:20]],
    }
    return dict(hello(), **record), b"".join(one.tobytes() for one in outputs)


WORK: dict[str, Callable[[dict[str, Any], Path], tuple[dict[str, Any], bytes]]] = {
    "compile": compiled,
    "simulate": simulated,
}
"""Functions that carry out a request, by its ``op``: compile or simulate."""


def answer(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return the reply to one request, and the bytes that follow the reply."""
    if request.get("op") == "hello":
        return hello(), b""
    if request.get("op") == "facilities":
        return {"ok": True, "refused": facilities.refused()}, b""
    if request.get("op") not in WORK:
        return {"ok": False, "kind": "protocol", "message": "unknown request {!r}".format(request.get("op"))}, b""
    visible = confine.hide(request["device_pattern"])
    if visible:
        text = "devices can not be hidden from the compiler: {}".format(", ".join(visible))
        return {"ok": False, "kind": "devices", "message": text}, b""
    package = "neuronxcc.nki" if request["api"] == "nki_legacy" else "nki"
    try:
        importlib.import_module(package)
    except ImportError as error:
        return {"ok": False, "kind": "missing", "message": f"{package} can not be imported: {error}"}, b""
    try:
        return WORK[request["op"]](request, Path(request["folder"]))
    except (MissingTool, MissingRoute) as error:
        kind = "route" if isinstance(error, MissingRoute) else "missing"
        return {"ok": False, "kind": kind, "message": str(error), "signatures": SIGNATURES}, b""
    except (Exception, SystemExit):  # noqa: BLE001 whatever the kernel's own Python raises is the kernel's failure
        text = traceback.format_exc()[-20000:]
        return {"ok": False, "kind": "kernel", "message": text, "signatures": SIGNATURES}, b""


def main() -> None:
    """Read one request, write its reply, and end the process."""
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
