"""An interpreter that finds acceld, its packages, Triton and this folder without any environment: for zygotes."""

import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def python_with_triton(folder):
    """Return the path of an interpreter with Triton, in an environment made under ``folder``."""
    import triton

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    folders = [ROOT, HERE, sysconfig.get_path("purelib"), Path(triton.__file__).parents[1]]
    place = next((folder / "venv" / "lib").glob("python*")) / "site-packages" / "found.pth"
    place.write_text("\n".join(map(str, folders)) + "\n")
    return str(folder / "venv" / "bin" / "python")
