"""Define every error that acceld raises on purpose.

::

    AcceldError                      exit code 1
     ├─ UsageError               2   the command line, a file or a value a person gave
     │   ├─ ConfigError              acceld.toml or an ACCELD_* variable
     │   ├─ WorkloadError            a workload folder
     │   └─ PromptError              a prompt file
     ├─ DaemonError              3   no daemon, or one that does not answer
     ├─ CredentialError          4   a key is missing or refused
     ├─ BudgetError              5   a cap would be exceeded
     │   └─ PriceError               a cap in USD holds, but the price of a call is unknown
     ├─ KernelFailure            7   acceld.nki.errors: a kernel that can not be traced or run
     ├─ ProgramError             7   acceld.nki.errors: bytes that are no program
     ├─ DeviceError              8   an accelerator, its driver or its tools
     ├─ DeadlineError          124   a named deadline passed
     ├─ StoreError                   the database
     ├─ RuleRefused                  a change of a kernel's source that is not proven
     └─ LLMError                     acceld.llm.errors: a model's answer or its absence

A kernel that fails is a value (:class:`acceld.model.Evaluation`), not an error. Errors are for defects of acceld or the
machine, for bad input, and for refusals.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

INTERRUPTED = 130
"""Exit code of a command that a person interrupted, and of one that waits for a run which a person cancelled."""


class AcceldError(Exception):
    """Base of all errors. ``message`` says what is wrong and where, ``hint`` what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(AcceldError):
    """A command line, file or value that can not be used."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file or variable that can not be used."""


class WorkloadError(UsageError):
    """A workload folder that can not be used."""


class PromptError(UsageError):
    """A prompt file whose placeholders do not match the given values."""


class DaemonError(AcceldError):
    """The daemon is not running or does not answer."""

    exit_code = 3


class CredentialError(AcceldError):
    """An API key is missing or was refused."""

    exit_code = 4


class BudgetError(AcceldError):
    """The next step would exceed a cap on money."""

    exit_code = 5


class PriceError(BudgetError):
    """A cap in USD holds, and the price of a call is unknown. A higher cap would not help."""


class DeviceError(AcceldError):
    """An accelerator, its driver or its tools are missing or broken."""

    exit_code = 8


class DeadlineError(AcceldError):
    """A deadline passed. The message names the deadline."""

    exit_code = 124


class StoreError(AcceldError):
    """The database can not be opened, written or trusted."""


class RuleRefused(AcceldError):
    """A change of a kernel's source is not proven to keep the kernel's results. The message says where and why."""


def refuse_notebook(name: str) -> None:
    """Raise UsageError if ``name`` is the file name of a notebook, which acceld does not read."""
    if name.endswith(".ipynb"):
        raise UsageError(
            f"{name} is a notebook, and acceld reads Python files",
            hint="save the kernel's cell, with its imports, as a file: begin the cell with %%writefile kernel.py",
        )


MOST_NAMED = 40
"""Greatest number of known names that the hint for an unknown name lists."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` with the known name that is most like ``name``; empty if no name is similar.
    Dashes at the beginning of an option are not compared.
    """
    import difflib  # imported here, because most commands get only known names

    bare = {one.lstrip("-"): one for one in known}
    near = difflib.get_close_matches(name.lstrip("-"), bare, n=1)
    return f"Did you mean {bare[near[0]]!r}?" if near else ""


def nearest_of(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the most similar known name; if no name is similar, at most
    :data:`MOST_NAMED` of the known names.
    """
    known = sorted(known) if isinstance(known, AbstractSet) else list(known)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return did_you_mean(name, known) or f"Known: {', '.join(known[:MOST_NAMED]) or 'none'}{more}."


def no_file(path: Path | str, *, hint: str = "") -> UsageError:
    """Return the error that says that ``path`` does not exist, or is a folder. The error names the most similar
    existing name, and ends with ``hint``.
    """
    path = Path(path)
    if path.is_dir():
        return UsageError(f"{path} is a folder, and a file is needed", hint=hint)
    folder = path.absolute().parent
    if not folder.is_dir():
        return UsageError(f"there is no file {path}, and no folder {folder}", hint=hint)
    near = did_you_mean(path.name, (one.name for one in folder.iterdir()))
    return UsageError(
        f"there is no file {path} in {folder}" if not path.is_absolute() else f"there is no file {path}",
        hint=" ".join(filter(None, (near, hint))),
    )
