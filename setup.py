"""Puts prompts/, workloads/, docs/, skills/ and the attacks of the self-test into the wheel as acceld/_data/.

It also builds the native part of the performance model. If that fails, the one in Python runs instead, and the wheel is one for
every platform.
"""

import hashlib
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithData(build_py):
    """Copies the data folders beside the package's modules; an editable install reads them where they are."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        # The attacks are the data of `acceld doctor selftest`, which anybody can run on an installed acceld. Pictures are for pages.
        for name in ("prompts", "workloads", "docs", "skills", "tests/adversarial"):
            target = Path(self.build_lib) / "acceld" / "_data" / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "pictures"))


class WheelOfWhatWasBuilt(bdist_wheel):
    """Names no platform and no ABI if the native part could not be built."""

    def run(self):
        self.run_command("build")
        if not any(Path(output).exists() for output in self.get_finalized_command("build_ext").get_outputs()):
            self.root_is_pure, self.py_limited_api = True, False
        super().run()


SOURCE = "acceld/nki/timing/native.pyx"
NATIVE = Extension(
    "acceld.nki.timing.native",
    [SOURCE],
    language="c++",
    define_macros=[
        ("Py_LIMITED_API", "0x030B0000"),
        # A checkout that has moved on since the build notices by this digest.
        ("ACCELD_BUILT_FROM", f'"{hashlib.sha256((ROOT / SOURCE).read_bytes()).hexdigest()}"'),
    ],
    py_limited_api=True,  # one wheel for every Python
    # Without -ffp-contract=off some processors would round differently from Python.
    extra_compile_args=["-std=c++17", "-O2", "-g0", "-fwrapv", "-ffp-contract=off"],
    optional=True,
)

setup(
    cmdclass={"bdist_wheel": WheelOfWhatWasBuilt, "build_py": BuildWithData},
    ext_modules=[NATIVE],
    options={"build_ext": {"cython_c_in_temp": True}, "bdist_wheel": {"py_limited_api": "cp311"}},
)
