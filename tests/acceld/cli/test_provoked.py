"""Messages for what a newcomer types wrong name what is wrong, where, and what to do. The exit code is the kind's."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from acceld.cli.main import main

KERNEL = """import nki
import nki.language as nl

@nki.jit
def kernel(x, w):
    return x
"""
FILES = {
    "kernel.py": KERNEL,
    "broken.py": "import nki\ndef kernel(:\n",
    "bare/reference.py": "def forward(x):\n    return x\n",
    "torn/workload.toml": "name = \n",
    "ref.py": "def forward(x):\n    return x @ x\n",
    "twice.jsonl": '{"workload": "silu", "kernel": "", "id": 1}\n' * 2,
    "line.jsonl": "{\n",
    "blank.jsonl": "{}\n",
    "empty.py": "\n",
    "folder/note.txt": "",
    "mounted/acceld.db/note.txt": "",
    "summary.json": '{"add": 1}',
    "half.json": '{"add": {"cases": {"0": {"impls": [{}]}}}}',
    "list.json": "[]",
    "array.npz": "no archive",
    "casts/ref.py": "import numpy as np\ndef get_inputs():\n    return [np.ones((4, 4), np.float32)]\n"
    "def forward(x):\n    return x\n",
    "odd/ref.py": "import numpy as np\ndef get_inputs():\n    return [np.ones((4, 5), np.float32)]\n"
    "def forward(x):\n    return x @ x\n",
    "unnamed/workload.toml": '[arguments.x]\nshape = ["N"]\ndtype = "float32"\n',
}
PROVOKED: dict[str, tuple[int, tuple[str, ...]]] = {
    "optimize": (2, ("acceld workloads lists them",)),
    "optimize slu": (2, ("'slu'", "'silu'")),
    "optimize kernl.py": (2, ("kernl.py", "'kernel.py'")),
    "optimize kernel.py": (2, ("kernel.py has no workload", "--workload", "acceld init kernel.py")),
    "optimize broken.py --workload silu": (2, ("broken.py:2: syntax error",)),
    "optimize silu --chip trn9": (2, ("--chip", "'trn9'", "'trn2'")),
    "optimize silu --chipp trn1": (2, ("--chipp", "Did you mean '--chip'?", "acceld optimize --help")),
    "optimize silu --iterations 0": (2, ("--iterations", "less than 1")),
    "optimize folder": (2, ("the folder folder has no workload.toml", "acceld init KERNEL.py", "acceld workloads")),
    "optimize empty.py --workload silu": (2, ("empty.py is empty", "write the kernel into it")),
    "optimize silu --backend cuda": (2, ("no kernel for cuda", "nki and nki_legacy", "--backend")),
    "import summary.json": (2, ("summary.json: add is no operator of NKIBench's summary", "an operator is an object")),
    "import half.json": (2, ("half.json: add has no", "values and impls")),
    "import list.json": (2, ("list.json is not a summary", "maps operators to their cases")),
    "model list.json": (2, ("list.json: the file names no model_type", "config.json, as Hugging Face has it")),
    "optimize silu --home kernel.py": (2, ("kernel.py is a file, not a state folder", "--home DIR")),
    "runs --home kernel.py": (2, ("kernel.py is a file, not a state folder", "--home DIR")),
    "runs --home mounted": (1, ("mounted/acceld.db is a folder", "Move acceld.db away")),
    "mcp --http 80": (2, ("--http '80'", "127.0.0.1:7431")),
    "calibrate --from kernel.py": (2, ("kernel.py:1", "not JSON", "docs/simulator.md")),
    "web --port 99999": (2, ("99999 is not the number of a port", "--port")),
    "optimize silu --api nki_legacy --chip trn3": (2, ("trn3", "--chip or --api")),
    "optimize ref.py": (2, ("ref.py", "--arg NAME=128x512:float32")),
    "optimize ref.py --arg x=4x5:float32": (
        2,
        (
            "ref.py:2",
            "The reference was called with x=4x5:float32: change --arg",
        ),
    ),
    "init --reference odd/ref.py --arg x=4x4:float32": (2, ("odd/ref.py:5", "what its get_inputs() returns")),
    "profile": (2, ("a kernel file or a workload is needed", "acceld profile KERNEL.py")),
    "profile kernel.py": (2, ("no workload", "--arg", "acceld init kernel.py")),
    "profile kernel.py --arg x=4x4:float31": (2, ("'x=4x4:float31'", "'float32'")),
    "profile kernel.py --arg x=4x4:float64": (2, ("'x=4x4:float64'", "use float32")),
    "profile unnamed": (2, ("unnamed/workload.toml", "'N'", "add N = NUMBER")),
    "port kernel.py": (2, ("kernel.py imports nki", "use the file as it is")),
    "init kernel.py --inputs array.npz": (2, ("array.npz is no file of arrays", "numpy.savez")),
    "init --reference casts/ref.py --arg x=4x4:bfloat16": (2, ("get_inputs makes x as 4x4:float32", "leave out --arg")),
    "profile odd/ref.py": (7, ("odd/ref.py is no kernel", "acceld init --reference odd/ref.py\n")),
    "profile ref.py": (7, ("ref.py is no kernel", "acceld init --reference ref.py --arg NAME=SHAPE:DTYPE")),
    "profile kernel.py --arg x": (2, ("'x'", "x=4096x8192:bfloat16")),
    "profile kernel.py --arg z=4x4:float32": (2, ("no parameter 'z'", "x, w")),
    "profile silu --backend cpu": (2, ("simulator, not on cpu", "acceld optimize silu --backend cpu")),
    "profile --jsonl twice.jsonl --out o": (2, ("twice.jsonl:2", "id 1 occurs twice", "id of its own")),
    "profile --jsonl line.jsonl --out o": (2, ("line.jsonl:1", "not JSON", '"workload"')),
    "profile --jsonl blank.jsonl --out o": (2, ("blank.jsonl:1", "names no workload")),
    "profile --jsonl none.jsonl --out o": (2, ("there is no file none.jsonl", "one JSON object a line")),
    "profile kernel.py --out o": (2, ("--out works only with --jsonl",)),
    "profile --jsonl twice.jsonl": (2, ("--out",)),
    "init": (2, ("acceld init KERNEL.py", "--reference")),
    "init kernel.py": (2, ("shapes of the arguments of kernel.py", "--arg")),
    "init kernel.py --arg y=4x4:float32": (2, ("no parameter 'y'", "x, w")),
    "init kernel.py --arg x=4x4:float32": (2, ("parameter w", "--arg w=SHAPE:DTYPE")),
    "watch kernl.py": (2, ("kernl.py", "'kernel.py'", "workload.toml")),
    "watch slu": (2, ("'slu'", "'silu'")),
    "watch kernel.py": (2, ("no workload", "acceld init")),
    "check kernel.py --nki 9": (2, ("--nki", "'9'", "0.7")),
    "check r1 --nki": (2, ("kernel file", "acceld check KERNEL.py")),
    "check kernl.py": (2, ("kernl.py", "'kernel.py'")),
    "check kernel.py --against": (2, ("--against", "--help")),
    "check --changed": (2, ("not a git repository", "in the repository of the kernels")),
    "doctor modls": (2, ("'modls'", "'models'", "selftest")),
    "runs --since yesterday": (2, ("'yesterday'", "7d")),
    "runs --state queued --chip trn1": (2, ("--state", "--where")),
    "show r1": (2, ("no history", "acceld optimize")),
    "export": (2, ("needs a run", "acceld export r12")),
    "export r1 --format md -o a.md": (2, ("takes no -o", "acceld export r1 --format md > a.md")),
    "export r1 --workload silu": (2, ("--workload works only for data sets", "html is a report")),
    "export --format pairs --redact -o a": (2, ("--redact works only for reports",)),
    "export --format pairs": (2, ("pairs", "-o DIR")),
    "compare a.json b.json": (2, ("there is no file a.json", "acceld suite run")),
    "compare a.json r1": (2, ("acceld compare A.json B.json",)),
    "apply r1": (2, ("KERNEL.py", "-o NEW.py")),
    "apply r1 a.py -o b.py": (2, ("to one file only, not to a.py, b.py",)),
    "budget r1 much": (2, ("USD", "'much'")),
    "model .": (2, (". is a folder", "Hugging Face")),
    "model nowhere.json": (2, ("there is no file nowhere.json", "Hugging Face")),
    "model line.jsonl": (2, ("line.jsonl is no config.json", "Hugging Face")),
    "suite run nowhere.toml": (2, ("there is no file nowhere.toml", "[[kernel]]")),
    "logs": (2, ("no daemon has written", "acceld start")),
    "db vacuum": (2, ("no history", "acceld optimize")),
    "db prune --older 3d": (2, ("no history", "acceld optimize")),
    "profile bare": (2, ("the folder bare has no workload.toml", "acceld init --reference bare/reference.py")),
    "profile torn": (2, ("torn/workload.toml", "line 1", "TOML")),
    "db restore nofile": (2, ("there is no file nofile", "Copies are in", "backups")),
    "status --home elsewhere": (3, ("no daemon runs for", "acceld start --home", "elsewhere")),
    "stop": (3, ("nothing to stop", "--home DIR")),
    "import nowhere": (2, ("there is no file nowhere",)),
    "config show search.beem": (2, ("no key or section 'search.beem'",)),
    "config path search": (2, ("path takes no search", "acceld config show KEY")),
    "config show --list": (2, ("--list", "acceld config trust DIR")),
    "runx": (2, ("'runx'", "'runs'", "--help --all")),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a newcomer's files."""
    folder = tmp_path_factory.mktemp("newcomer")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("line", PROVOKED)
def test_a_message_says_what_where_and_what_to_do(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("ACCELD_HOME", str(place / ".acceld"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(place.parent))
    code, words = PROVOKED[line]
    before = sorted(place.iterdir())
    assert main(shlex.split(line)) == code
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Errno" not in said and "Traceback" not in said
    assert {one.name for one in place.iterdir()} - {one.name for one in before} <= {".acceld"}, "nothing is left behind"
