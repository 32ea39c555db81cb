"""Modules of PyTorch become references that agree with them. Skipped where PyTorch is not installed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from acceld.child import child
from acceld.cli.main import main
from acceld.cli.modules import write_module_workload
from acceld.errors import UsageError
from acceld.lowering.aten import requests
from acceld.lowering.aten.requests import ModuleReference, ModuleRequest, Refused, module_references
from acceld.workloads import load_workload

MODULES = Path(__file__).with_name("modules.py")
with_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def asked(name: str, *arrays: tuple[tuple[int, ...], str], **further: Any) -> ModuleRequest:
    """Return a request for a module of the tests."""
    names = ("x", "y", "z")
    given = tuple({"name": n, "shape": s, "dtype": d} for n, (s, d) in zip(names, arrays, strict=False))
    return ModuleRequest(f"{MODULES}:{name}", given, **further)


def run(script: str) -> None:
    """Run a script, which imports torch, in a process of its own."""
    start = child("-W", "ignore", "-c", script)
    done = subprocess.run(start.command, env=start.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@with_torch
@pytest.mark.slow
def test_modules_become_references_that_agree_with_them() -> None:
    f = "float32"
    right = [
        asked("Block", ((2, 40, 64), f)),
        asked("Images", ((2, 3, 30, 25), f)),
        asked("Images", ((2, 3, 30, 25), f), training=True),
        asked("Recurrent", ((3, 7, 12), f)),
        asked("Losses"),
        asked("Draws", ((4, 8), f), init={"factor": 2.5}),
        asked("Drops", ((4, 8), f)),
        asked("Borders", ((4, 8), f)),
        asked("Sorts", ((4, 8), f), ((2,), "int64"), ((2, 8), f)),
        ModuleRequest(
            f"{MODULES}:Cached",
            (
                {"name": "keys", "shape": (4, 9, 2, 8), "dtype": f},
                {"name": "key", "shape": (4, 2, 8), "dtype": f},
                {"name": "position", "shape": (4,), "dtype": "int64"},
            ),
        ),
        ModuleRequest(f"{MODULES}:Stores", ({"name": "ids", "shape": (3, 6), "dtype": "int64"},)),
        asked("Resized", ((2, 3, 7, 6), f)),
        asked("Distances", ((2, 28, 8), f), ((2, 30, 8), f)),
        asked("Ordered", ((6, 8), f), ((6, 8), "int64")),
        asked("Combined", ((6, 8), f), ((6, 8), "int64"), ((6, 8), f)),
        asked("Spectra", ((4, 8), f), ((4, 8), f)),
        asked("Sampled", ((2, 3, 7, 6), f), ((2, 4, 5, 2), f)),
        asked("Weighted", ((5, 4), f), ((5,), "int64"), ((5, 4), f)),
        asked("Casts", ((4, 8), f)),
        asked("Turns", ((2, 24, 4), f)),
        asked("Bags", ((6, 5), "int64"), ((12,), "int64"), ((3,), "int64")),
        asked("Wholes", ((4, 8), "int32"), ((4, 8), "float16")),
    ]
    wrong = [
        (asked("Unique", ((4, 8), f)), r"at modules\.py:\d+: aten\.special_bessel_j0 is not lowered"),
        (asked("Keeps", ((4, 8), f)), "writes its buffer cache: take it as an argument"),
        (asked("Chosen", ((4, 8), f)), r"aten\.\w+: a shape that depends on values is not lowered; keep all rows"),
        (asked("Drops", ((4, 8), f), training=True), "random"),
        (asked("Draws", ((4, 8), f)), "the module can not be made: TypeError"),
        (asked("Absent", ((4, 8), f)), r"modules\.py has no class Absent; Known: Block"),
        (asked("Inverse", ((4, 4), f)), r"torch\.linalg\.inv is not lowered; pass its result as an argument"),
        (asked("Branches", ((4, 8), f)), r"branches on a value of an array at modules\.py:\d+: compute both branches"),
        (asked("Decides", ((4, 8), f)), r"branches on a value of an array at modules\.py:\d+: compute both branches"),
        (asked("Reads", ((4, 8), f)), r"at modules\.py:\d+: a number that is read from an array, as by item\(\)"),
        (
            asked("Nested", ((4, 8), f)),
            r"as torch\.cond, torch\.while_loop and flex_attention do, which is not lowered",
        ),
        (asked("NoModule", ((4, 8), f)), r"modules\.py: NoModule makes no torch\.nn\.Module: name a class"),
        (ModuleRequest("absent_place.py:Block"), r"there is no file \S+absent_place\.py"),
        (ModuleRequest("absent_place:Block"), "there is no Python module absent_place: name a file"),
        (asked("Empty", ((4, 8), f)), "output 2 of the module has no elements: leave it out"),
        (asked("Fixed", ((4, 8), f)), "depend on no array: let forward read one of its arguments"),
        (asked("Writes", ((4, 8), f)), "writes its argument x"),
        (asked("Pairs", ((4, 8), f)), "returns None beside arrays"),
        (asked("Turned", ((4, 8), f)), "turns has complex numbers, which are not lowered: keep real and imaginary"),
        (
            asked("Options", ((4, 8), f), ((4, 8), f)),
            "has no argument 'y' by --arg or --scalar; forward takes x, mask, scale, unread",
        ),
        (asked("Ends", ((4, 8), f)), "ended with exit code 3"),
        (asked("Unique", ((4, 8), f)), r"is not lowered"),  # a new process answers after one that ended
    ]
    found = list(module_references([*right, *(one for one, _ in wrong)]))
    for one in found[: len(right)]:
        assert isinstance(one, ModuleReference), one
        assert one.difference is not None and one.difference < 1e-7
    block, losses, bags, wholes = found[0], found[4], found[len(right) - 2], found[len(right) - 1]
    assert isinstance(bags, ModuleReference) and isinstance(wholes, ModuleReference)
    turns = found[len(right) - 3]
    assert isinstance(turns, ModuleReference) and "np.arange(24)" in turns.text
    assert bags.text.count("np.random.randint(0, 20") == 2 and "np.random.randint(0, 1, (3,))" in bags.text
    assert "np.random.randint(0, 10, (4, 8))" in wholes.text, "a whole number that selects nothing is not 0 or 1 alone"
    assert isinstance(block, ModuleReference) and isinstance(losses, ModuleReference)
    cached = found[9]
    assert isinstance(cached, ModuleReference) and "np.random.randint(0, 9, (4,))" in cached.text
    assert "mask" not in [one.name for one in block.arguments] and "np.arange(48)" in block.text
    assert "np.triu(" in losses.text and "np.random.randint(0, 16, (4,))" in losses.text
    for one, (_, words) in zip(found[len(right) :], wrong, strict=True):
        assert isinstance(one, Refused) and re.search(words, one.why), one


@with_torch
@pytest.mark.slow
def test_init_makes_a_workload_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MODULES.read_text("utf-8"), encoding="utf-8")
    words = ["init", "--module", "mine:Block", "--init", "width=32", "--arg", "x=2x24x32:float32", "--api", "nki"]
    assert main([*words, "--home", str(tmp_path / "home"), "--json"]) == 0
    result = capsys.readouterr()
    assert json.loads(result.out)["status"] == "passed"
    assert "agrees with the module" in result.err
    loaded = load_workload(tmp_path / "block")
    assert [one.name for one in loaded.arguments][:2] == ["x", "norm_weight"]


@with_torch
@pytest.mark.slow
def test_a_patched_model_gives_the_outputs_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = next(iter(module_references([asked("Block", ((2, 24, 32), "float32"), init={"width": 32})])))
    assert isinstance(found, ModuleReference)
    write_module_workload(found, tmp_path / "block", name="block")
    script = f"""
import sys; sys.path.append({str(MODULES.parent)!r})
import torch
from modules import Block
from acceld.errors import UsageError
from acceld.torch_operators import Replaced, put_back
model = torch.nn.Sequential(Block(32), torch.nn.Tanh(), Block(32)).eval()
x, short = torch.randn(2, 24, 32), torch.randn(1, 8, 32)
with torch.no_grad():
    before, other = model(x), model(short)
    assert put_back(model, "Block", "block") == 2 and isinstance(model[0], Replaced)
    after = model(x)
    assert torch.linalg.norm(after - before) <= 1e-5 * torch.linalg.norm(before) and not torch.equal(after, before)
    assert torch.equal(model(short), other)
    torch.library.opcheck(model[0].operator.call, tuple(torch.randn(s.shape) for s in model[0].operator.workload.arguments),
        test_utils=("test_schema", "test_faketensor"))
try:
    put_back(model, "Absent", "block")
    raise SystemExit("it was found")
except UsageError as error:
    assert "no submodule of the class 'Absent'" in str(error)
"""
    run(script)


@with_torch
@pytest.mark.slow
def test_an_operator_is_called_only_as_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = tuple({"name": name, "shape": (4, 8), "dtype": "float32"} for name in ("unread", "x"))
    (found,) = module_references([ModuleRequest(f"{MODULES}:Options", given)])
    assert isinstance(found, ModuleReference), found
    assert [one.name for one in found.arguments if "_" not in one.name] == ["x"]
    assert "'mask': None" in found.text and "'scale': 2.0" in found.text and "'unread': ..." in found.text
    write_module_workload(found, tmp_path / "options", name="options")
    script = f"""
import sys; sys.path.append({str(MODULES.parent)!r})
import torch
from modules import Draws, Options
from acceld.errors import UsageError
from acceld.torch_operators import put_back
model, calls = torch.nn.ModuleList([Options()]).eval(), []
put_back(model, "Options", "options")
model[0].module.register_forward_hook(lambda *_: calls.append(1))
x = torch.randn(4, 8)
with torch.no_grad():
    plain = model[0].module(x); calls.clear()
    assert torch.allclose(model[0](x, scale=2.0, unread=x), plain, atol=1e-6) and not calls
    assert torch.equal(model[0](x, scale=3.0), model[0].module(x, scale=3.0))
    assert torch.equal(model[0](x, x), model[0].module(x, x)) and len(calls) == 4
    model.to(torch.bfloat16)
    assert model[0](x.bfloat16()).dtype == torch.float32 and len(calls) == 5
try:
    put_back(torch.nn.ModuleList([Draws(1.0)]).eval(), "Draws", "options")
    raise SystemExit("it was put back")
except UsageError as error:
    assert "Draws has no first_bias, second_weight, second_bias, which options takes" in str(error), error
"""
    run(script)


@with_torch
@pytest.mark.slow
def test_a_module_put_back_returns_what_it_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        MODULES.read_text("utf-8").replace("def get_inputs(", "def others(").replace("def several(", "def get_inputs(")
    )
    Path("nested.py").write_text(text, encoding="utf-8")
    x = ({"name": "x", "shape": (4, 8), "dtype": "float32"},)
    requests = [ModuleRequest("nested.py:Several"), ModuleRequest("nested.py:Alone", x)]
    requests += [ModuleRequest("nested.py:Alone", x, training=True)]
    for name, found in zip(("several", "alone", "trained"), module_references(requests), strict=True):
        assert isinstance(found, ModuleReference), found
        assert found.difference is not None and found.difference < 1e-7
        write_module_workload(found, tmp_path / name, name=name)
    several = load_workload(tmp_path / "several")
    assert [one.name for one in several.arguments] == ["first_0", "first_1", "named_b", "further_0", "further_1"]
    script = """
import sys; sys.path.append(".")
import torch
from nested import Alone, Several, get_inputs
from acceld.errors import UsageError
from acceld.torch_operators import Replaced, put_back

class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = Alone()
        self.two, self.outer, self.several = self.one, Alone(Alone()), Several()

def refused(words, model, name):
    try:
        put_back(model, "Alone", name)
    except UsageError as error:
        assert words in str(error), error
    else:
        raise SystemExit(f"not refused: {words}")

model, given, calls = Twice(), get_inputs(), []
refused("one is in training mode", model, "alone")
refused("recorded in training mode", model.eval(), "trained")
x = torch.randn(4, 8)
assert put_back(model, "Alone", "alone") == 2
assert model.one is model.two and type(model.outer.module.inner) is Alone
model.one.module.register_forward_hook(lambda *_: calls.append(1))
with torch.no_grad():
    found = model.two(x)
    assert type(found) is tuple and len(found) == 1 and not calls
    assert torch.allclose(found[0], model.one.module(x)[0], atol=1e-6) and calls.pop()
    wanted = model.several(*given)
    assert put_back(model, "Several", "several") == 1
    hook = model.several.module.register_forward_hook(lambda *_: calls.append(1))
    found = model.several(*given)
    assert not calls and list(found) == ["ends", "sum"] and type(found["ends"]) is tuple
    assert torch.allclose(found["ends"][0], wanted["ends"][0]) and torch.allclose(found["sum"], wanted["sum"], atol=1e-6)
    assert torch.equal(model.several(*given, x)["sum"], found["sum"]) and calls.pop(), "one array more is another call"
    model.train()
    model.one(x)
    assert calls.pop(), "in training mode the module itself runs"
"""
    run(script)


@with_torch
@pytest.mark.slow
def test_where_torch_neuronx_is_the_operator_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in registers as torch-neuronx does: a name, what is mutated, and a function with types."""
    monkeypatch.chdir(tmp_path)
    (found,) = module_references(
        [ModuleRequest(f"{MODULES}:Alone", ({"name": "x", "shape": (4, 8), "dtype": "float32"},))]
    )
    assert isinstance(found, ModuleReference), found
    write_module_workload(found, tmp_path / "alone", name="alone")
    Path("torch_neuronx.py").write_text(
        "import torch\nmade = []\n\n\ndef nki_op(name, mutates_args):\n"
        "    made.append((name, mutates_args))\n"
        "    return lambda called: torch.library.custom_op(name, called, mutates_args=mutates_args)\n",
        encoding="utf-8",
    )
    script = f"""
import sys; sys.path += [{str(MODULES.parent)!r}, "."]
import torch, torch_neuronx
from modules import Alone
from acceld.torch_operators import put_back
model, x = torch.nn.ModuleList([Alone()]).eval(), torch.randn(4, 8)
assert put_back(model, "Alone", "alone") == 1
((name, mutated),) = torch_neuronx.made
assert name.startswith("acceld::alone_") and not mutated
schema = str(model[0].operator.call._schema)
assert "(Tensor x, Tensor linear_weight, Tensor linear_bias) -> Tensor[]" in schema, schema
with torch.no_grad():
    assert torch.allclose(model[0](x)[0], model[0].module(x)[0], atol=1e-6)
"""
    run(script)


REGIONS = {
    "llama": {
        "q_proj_k_proj_v_proj": 2,
        "self_attn": 2,
        "o_proj": 2,
        "gate_proj_up_proj": 2,
        "down_proj": 2,
        "head": 1,
    },
    "qwen3": {
        "q_proj_k_proj_v_proj": 2,
        "self_attn": 2,
        "o_proj": 2,
        "gate_proj_up_proj": 2,
        "down_proj": 2,
        "head": 1,
    },
    "qwen3_moe": {"q_proj_k_proj_v_proj": 2, "self_attn": 2, "o_proj": 2, "gate": 2, "gate_proj_up_proj": 8, "head": 1},
}


@with_torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", REGIONS)
def test_a_model_is_divided_and_its_regions_are_put_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["model", f"{MODULES}:Decoder", "--init", f"kind={kind}", "--arg", "ids=2x24:int32", "--least-share", "0"]
    assert main([*words, "--json", "-o", "step"]) == 0
    result = capsys.readouterr()
    found = {one["region"]: one for one in json.loads(result.out)["regions"]}
    assert REGIONS[kind].items() <= {name: one["count"] for name, one in found.items()}.items(), found.keys()
    assert not any("refused" in one for one in found.values()), found
    assert sum(one["share"] for one in found.values()) == pytest.approx(1.0)
    assert "no nki kernel" not in result.err, result.err
    script = f"""
import sys; sys.path += [{str(MODULES.parent)!r}, "step"]
import torch
from modules import Decoder
from patch import REGIONS, patched
from acceld.errors import UsageError
from acceld.torch_operators import put_regions
torch.manual_seed(0)
model, ids = Decoder({kind!r}).eval(), torch.randint(0, 50, (2, 24), dtype=torch.int32)
with torch.no_grad():
    before = model(ids)
    changed = patched(model, ids)
    after = changed(ids)
distance = torch.linalg.norm(after - before) / torch.linalg.norm(before)
assert 0 < distance <= 1e-5, distance
left = [one for one in changed.graph.nodes if one.op == "call_function" and "acceld" not in str(one.target)]
assert {{one.target.__name__ for one in left}} <= {{"getitem"}}, left
for words, made in (
    ("no region", lambda: put_regions(model, "step", (ids[:, :8],))),
    ("in training mode", lambda: put_regions(Decoder({kind!r}), "step", (ids,))),
):
    try:
        made()
        raise SystemExit(f"not refused: {{words}}")
    except UsageError as error:
        assert words in str(error), error
"""
    run(script)


@with_torch
@pytest.mark.slow
def test_a_model_whose_class_reads_values_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["model", f"{MODULES}:Deepening", "--arg", "x=4x8:float32", "--json"]) == 0
    regions = json.loads(capsys.readouterr().out)["regions"]
    assert sum(one["count"] for one in regions) == 3 and not any("refused" in one for one in regions)


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"PyTorch is not installed"):
        list(module_references([asked("Block")]))


@pytest.mark.parametrize(
    "words, message",
    [
        (["--module", "a:B", "--reference", "r.py"], "a kernel, a reference or a module"),
        (["--reference", "r.py", "--init", "a=1"], "no module is named"),
        (["--module", "a:B", "--init", "width"], "is not NAME=VALUE"),
        (["mine", "--module", "a:B"], "to name the folder, write -o mine in its place"),
    ],
)
def test_init_says_what_does_not_go_together(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["a:B", "--seq", "4", "--decode"], "--seq, --decode works only with a config.json"),
        (["config.json", "--arg", "x=4x8:float32"], "--arg describes a module, and config.json is a config.json"),
        (["a:B", "--init", "width"], "is not NAME=VALUE"),
    ],
)
def test_model_says_what_does_not_go_together(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["model", *words]) == 2
    assert message in capsys.readouterr().err


@with_torch
def test_a_module_is_decomposed_only_if_an_operator_needs_it() -> None:
    run(
        """
import torch
from torch.export import ExportedProgram
from acceld.lowering.aten.export import Subject, program_of

class Gate(torch.nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, -1)
        return torch.nn.functional.silu(a).to(torch.bfloat16) * b

class Written(torch.nn.Module):
    def forward(self, x):
        return x.clone().add_(1.0)

class Wordless(torch.nn.Module):
    def forward(self, x):
        return torch.special.entr(x)

calls = []
decompose = ExportedProgram.run_decompositions
ExportedProgram.run_decompositions = lambda *args: calls.append(1) or decompose(*args)
found = []
for module in (Gate().eval(), Gate().train(), Written().eval(), Wordless().eval()):
    program = program_of(Subject("a module", module, (torch.ones(4, 8),)))
    found.append((len(calls), [one.operator for one in program.calls]))
assert [count for count, _ in found] == [0, 1, 2, 3], found
assert not any(name.endswith("_") for _, names in found for name in names), found
"""
    )


@with_torch
def test_a_norm_that_takes_the_statistics_of_its_input_has_no_running_ones() -> None:
    run(
        """
import torch
from acceld.lowering.aten.export import Subject, program_of
x = torch.ones(4, 8, 5)
norm = torch.nn.BatchNorm1d(8)
for module, training, wanted in (
    (norm, True, ["input", "weight", "bias"]),
    (norm, False, ["input", "weight", "bias", "running_mean", "running_var"]),
    (torch.nn.InstanceNorm1d(8, track_running_stats=True), True, ["input"]),
):
    found = [one.path for one in program_of(Subject("a norm", module.train(training), (x,))).inputs]
    assert found == wanted, found
"""
    )


@with_torch
def test_extents_of_images_and_their_batch_are_reduced_whatever_they_are_called() -> None:
    run(
        "from acceld.lowering.aten.export import reduced\n"
        "text = 'batch_size = 64\\nin_channels = 96\\nwidth_in = 513\\nheight_in = 64\\ndepth_in = 20\\nkernel = (3, 5)'\n"
        "wanted = 'batch_size = 2\\nin_channels = 96\\nwidth_in = 129\\nheight_in = 24\\ndepth_in = 20\\nkernel = (3, 5)'\n"
        "assert reduced(text) == wanted, reduced(text)\n"
        "text = 'batch_size = 64\\nx = torch.rand(batch_size, 3, 224, 224)'\n"
        "assert reduced(text) == text.replace('64', '2', 1), reduced(text)\n"
        "text = 'batch_size = 64\\nx = torch.rand(batch_size, 8, heads, 224)'\n"
        "assert reduced(text) == text, reduced(text)\n"
    )


@with_torch
def test_a_module_that_refuses_reduced_numbers_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(
        """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.attention = torch.nn.Linear(width, heads)

    def forward(self, x):
        return self.attention(x)

batch_size = 256
width = 180
heads = 12
image_size = 64
height = 64

def get_inputs():
    return [torch.rand(batch_size, width)]

def get_init_inputs():
    return [width, heads]
"""
    )
    request = ModuleRequest(f"{tmp_path / 'problem.py'}:Model", training=True, reduced=True)
    (found,) = module_references([request])
    assert isinstance(found, ModuleReference), found
    assert [one.shape for one in found.arguments] == [(2, 180), (12, 180), (12,)]


def test_import_of_kernelbench_needs_a_folder_with_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.py").write_text("x = 1\n", encoding="utf-8")
    assert main(["import", "kernelbench", "."]) == 2
    assert "has no problem of KernelBench" in capsys.readouterr().err
    assert main(["import", "kernelbench", "absent"]) == 2
    assert "there is no folder absent" in capsys.readouterr().err
    assert main(["import", "kernelbench"]) == 2
    assert "kernelbench needs a folder" in capsys.readouterr().err
    assert main(["import", "a", "b"]) == 2
    assert "exactly one source is needed" in capsys.readouterr().err


@with_torch
def test_import_of_kernelbench_goes_on_after_the_problems_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1_Twice", "2_Twice"):
        write_problem(tmp_path, name, "2.0 * x")
    assert main(["import", "kernelbench", "level1", "--only", "1_Twice"]) == 0
    before = (tmp_path / "workloads" / "level1_1_Twice" / "workload.toml").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["import", "kernelbench", "level1"]) == 0
    told = capsys.readouterr().err
    assert "1 problem in workloads already; remove a workload's folder to import it again" in told
    assert "1 problem: 1 workload in workloads, 1 with a lowered kernel, in " in told
    assert (tmp_path / "workloads" / "level1_1_Twice" / "workload.toml").stat().st_mtime_ns == before
    assert (tmp_path / "workloads" / "level1_2_Twice").is_dir()


@with_torch
def test_import_of_kernelbench_tells_of_each_problem_in_the_order_of_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_problem(tmp_path, "10_Twice", "2.0 * x")
    write_problem(tmp_path, "2_Killed", "__import__('os').kill(__import__('os').getpid(), 9)")
    write_problem(tmp_path, "3_Broken", "2.0 * * x")
    write_problem(tmp_path, "4_Rounded", "torch.linalg.inv(x[:, :4])")
    assert main(["import", "kernelbench", "level1", "--reduced"]) == 1
    told = capsys.readouterr().err
    patterns = (
        r"1 of 4, \d+ s: level1_2_Killed: no workload: .* was ended by SIGKILL, as a system that runs out of memory does",
        r"2 of 4, \d+ s: level1_3_Broken: no workload: level1/3_Broken\.py:5: the module can not be made: SyntaxError: invalid syntax$",
        r"3 of 4, \d+ s: level1_4_Rounded: no workload: .*linalg\.inv is not lowered",
        r"4 of 4, \d+ s: level1_10_Twice: a workload with kernels for nki and nki_legacy$",
        r"4 problems: 1 workload in workloads, 1 with a lowered kernel, in \d+ s$",
    )
    places = [re.search(one, told, re.MULTILINE) for one in patterns]
    assert all(places), told
    starts = [one.start() for one in places if one]
    assert starts == sorted(starts), told


def test_import_of_kernelbench_that_is_stopped_says_what_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(asked: Sequence[ModuleRequest]) -> Iterator[Refused]:
        yield Refused(asked[0].module, "no")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(requests, "module_references", stopped)
    write_problem(tmp_path, "1_Twice", "2.0 * x")
    write_problem(tmp_path, "2_Twice", "2.0 * x")
    assert main(["import", "kernelbench", "level1"]) == 130
    told = capsys.readouterr().err
    assert "1 of 2, 0 s: level1_1_Twice: no workload: no\n" in told
    assert "1 of 2 problems tried, 0 workloads in workloads; the same command continues\n" in told


def write_problem(folder: Path, name: str, result: str) -> None:
    """Write a problem of KernelBench's form, whose forward returns ``result``."""
    (folder / "level1").mkdir(exist_ok=True)
    (folder / "level1" / f"{name}.py").write_text(
        f"import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {result}\n\n"
        "def get_inputs():\n    return [torch.rand(4, 8)]\n\ndef get_init_inputs():\n    return []\n"
    )
