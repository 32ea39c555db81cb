"""Write a better kernel over the file it came from: only a win, only a drop-in replacement, with a backup, and never over edits.

To write a file, call :func:`check_win`, :func:`seen` and :func:`check_drop_in`, evaluate the new text, and call
:func:`compared_with_file` and :func:`apply`, in this order.
"""

from __future__ import annotations

import ast
import codecs
import hashlib
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.errors import UsageError, no_file
from acceld.gains import APART, UNVALIDATED, gain, judged
from acceld.model import WRITTEN_OUT, Evaluation, Gate, Kernel, Source, Status
from acceld.parsing import parse
from acceld.private_files import NO_ROOM
from acceld.watch.hashes import signature, without_comments

NO_KERNEL = "the file has no kernel of that name"


def seen(path: Path) -> str:
    """Return the sha256 of a file's content now. Raise UsageError if the file is missing or can not be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError as error:
        raise no_file(path, hint=f"To write a new file: -o {path}") from error
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror}", hint="give a file that you may read") from error


def seen_as(path: Path, text: str) -> str:
    """Return the sha256 of a file's content now. Raise UsageError as :func:`seen` does, or if the file's text is not
    ``text``.
    """
    sha256 = seen(path)
    try:
        now = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _changed(path) from error
    if now != text:
        raise _changed(path)
    return sha256


def check_win(run: Mapping[str, Any]) -> None:
    """Raise UsageError if a run's best kernel is no certain or likely gain over the baseline. ``run`` is the run's
    row.
    """
    worth = judged(run)
    if worth is not None and worth.worth_applying:
        return
    if run["best"] == run["baseline"]:
        raise UsageError(
            f"c{run['best']} is the baseline of r{run['id']} itself: nothing faster passed, so nothing was written",
            hint=f"acceld show r{run['id']} says why, and what to try next",
        )
    gained = figures.gained(run["speedup"], worth, run["tie_band"], _NO_BAND[run["source"]])
    raise UsageError(
        f"c{run['best']} of r{run['id']} is no win: {gained} over the baseline; nothing was written",
        hint=f"acceld show r{run['id']} says why; {_NEVERTHELESS}",
    )


_NO_BAND = {Source.SIMULATED: UNVALIDATED, Source.MEASURED: APART}
"""Reason why the uncertainty of a speed-up is not known, by the source of the latencies."""


_KNOWN = """
SELECT c.id AS id, c.status AS status, r.workload AS workload
FROM sources s JOIN candidates c ON c.source = s.sha256 JOIN runs r ON r.id = c.run WHERE s.text_sha256 = ?
"""


def known_as(text: str) -> tuple[str, tuple[str]]:
    """Return a query, with its values, for the candidates whose kernel has this text: id, workload and status."""
    return _KNOWN, (hashlib.sha256(text.encode()).hexdigest(),)


async def compared_with_file(
    path: Path,
    text: str,
    known: Sequence[Mapping[str, Any]],
    row: Mapping[str, Any],
    kernel: Kernel,
    tried: Evaluation,
    evaluate: Callable[[Kernel, Gate], Awaitable[Evaluation]],
    *,
    even_if_tied: bool,
) -> str:
    """Return in words the gain of a run's best kernel over ``text``, the kernel that a file holds now.

    ``row`` is the run's row, ``kernel`` the run's best kernel, and ``tried`` the present evaluation of that kernel.
    ``known`` are the candidates with the text of the file (:func:`known_as`). A text that is no candidate is also run
    on data. Raise UsageError if the file's kernel belongs to another workload or is faster; ``even_if_tied`` allows
    a tie.
    """
    best = f"c{row['best']}"
    others = sorted({one["workload"] for one in known} - {row["workload"]})
    own = [one for one in known if one["workload"] == row["workload"]]
    if others and not own:
        raise UsageError(
            f"{path.name} holds a kernel of workload {others[0]}, and {best} is one of {row['workload']}; nothing was written",
            hint=f"give the file of {row['workload']}, or write a new file: acceld apply r{row['id']} -o FILE",
        )
    passed = any(one["status"] == Status.PASSED for one in own)
    held = await evaluate(replace(kernel, text=text, trusted=False), Gate.TIMING if passed else Gate.SEARCH)
    if held.status is Status.INCORRECT_NUMERICAL:
        raise UsageError(
            f"{path.name} does not compute what {best} computes, the formula of {row['workload']}; nothing was written",
            hint=f"give the file of {row['workload']}, or write a new file: acceld apply r{row['id']} -o FILE",
        )
    change = gain(held.profile, tried.profile)
    if change is None:
        over_baseline = figures.gained(row["speedup"], judged(row), row["tie_band"], _NO_BAND[row["source"]])
        return f"{over_baseline} over the baseline of r{row['id']}; what {path.name} held can not be timed"
    assert held.profile is not None and tried.profile is not None
    simulated = tried.profile.source is Source.SIMULATED
    slower = change.faster is False or (simulated and change.ratio < 1)
    if slower and not even_if_tied:
        at = "predicted" if simulated else "measured"
        before, after = (figures.duration(one.latency_us or 0.0) for one in (held.profile, tried.profile))
        raise UsageError(
            f"{path.name} is {at} to take {before}, and {best} {after}, which is slower; nothing was written",
            hint=_NEVERTHELESS,
        )
    verdict = change.verdict(tried.profile.source)
    return f"{figures.gained(change.ratio, verdict, change.band_percent, change.reason)} over what {path.name} held"


_NEVERTHELESS = "to write it nevertheless: --even-if-tied (agents: even_if_tied)"


def check_drop_in(path: Path, kernel: Kernel, run: int | None = None) -> None:
    """Raise UsageError if the file's callers would have to change for ``kernel``, a kernel of ``run``, so that it is no
    drop-in replacement.
    """
    own = Path(kernel.filename).suffix or (".c" if kernel.api == "c" else ".py")
    if path.suffix != own:
        raise UsageError(
            f"{path} ends in {path.suffix!r}, but the kernel is a {own} file", hint="to write a new file: -o FILE"
        )
    find = c_differences if own == ".c" else python_differences
    try:
        found = find(path.read_text(encoding="utf-8-sig"), kernel.text, kernel.entry)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can not be read as a kernel: {error}", hint="to write a new file: -o FILE") from error
    if found and WRITTEN_OUT in kernel.text:
        raise UsageError(
            f"the kernel was written out from a trace for the workload's shapes alone, so it does not replace {path}",
            hint=f"write it to a file of its own, and call it for these shapes: acceld apply r{run} -o FILE"
            if run
            else "write it to a new file, and call it for these shapes",
        )
    if found:
        raise UsageError(
            f"the kernel is not a drop-in replacement for {path}: {'; '.join(found)}",
            hint=f"compare them, and write a new file: acceld apply r{run} -o FILE"
            if run
            else "write it to a new file",
        )


def holds(path: Path, text: str) -> bool:
    """Tell whether a file has this text already, whatever its line ends are."""
    try:
        return path.read_text(encoding="utf-8-sig") == text
    except (OSError, UnicodeDecodeError):  # the steps that follow report the fault of the file
        return False


def written(candidate: int, gained: str, path: Path, backup: Path) -> str:
    """Return the message about a candidate that was written to ``path``."""
    return f"wrote c{candidate} ({gained}) to {path}, after it was traced, verified and timed again; the former content is in {backup}"


def backup_of(path: Path, sha256: str) -> Path:
    """Return the path of the copy that :func:`apply` keeps of a file with this content."""
    return path.with_name(f"{path.name}.{sha256[:8]}.bak")


def apply(path: Path, text: str, expected_sha256: str) -> Path:
    """Replace the content of ``path`` by ``text``, and return the backup's path.

    The file keeps its permissions, its kind of line ends and its byte order mark. Raise UsageError if the file's
    content no longer has the hash ``expected_sha256``, or if the file can not be written.
    """
    path = path.resolve()  # a link stays: the file that it points to is written
    backup = backup_of(path, expected_sha256)
    part: Path | None = None
    try:
        before = path.read_bytes()
        if hashlib.sha256(before).hexdigest() != expected_sha256:
            raise _changed(path)
        mode = path.stat().st_mode & 0o777
        # os.replace for the backup too: a link at the backup's path is replaced, not followed
        for place, content in ((backup, before), (path, _written_like(text, before))):
            part = _beside(path, content, mode)
            if place == path and seen(path) != expected_sha256:  # the file was saved while the backup was written
                raise _changed(path)
            os.replace(part, place)
            part = None
    except OSError as error:
        raise UsageError(
            f"can not write {path}: {error.strerror}; its content is as before",
            hint=f"make room on the disk of {path.parent}, then apply again"
            if error.errno in NO_ROOM
            else "make the file and its folder writable, or write a new file with -o",
        ) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    return backup


def _beside(path: Path, content: bytes, mode: int) -> Path:
    """Write a new file with a random name beside ``path``, to the disk, and return its path. If an OSError is raised, no
    such file is left.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".acceld-part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems find only now that there is no room
            os.fchmod(file.fileno(), mode)
    except OSError:
        os.unlink(name)
        raise
    return Path(name)


def _written_like(text: str, before: bytes) -> bytes:
    """Return ``text`` as bytes with the line ends of ``before``, and with the byte order mark of ``before``, if there
    is one.
    """
    made = text.encode("utf-8")
    if before.count(b"\n") and before.count(b"\r\n") == before.count(b"\n"):
        made = made.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return codecs.BOM_UTF8 + made if before.startswith(codecs.BOM_UTF8) else made


def _changed(path: Path) -> UsageError:
    return UsageError(
        f"{path} has changed since it was read; nothing was written",
        hint="look at the file, then apply again; acceld watch starts from the new text at its next save",
    )


def restore(path: Path, backup: Path, written_sha256: str) -> None:
    """Put the backup back in place of the text that :func:`apply` wrote. The backup itself is then gone.

    Raise UsageError if the file was changed after :func:`apply`.
    """
    path = path.resolve()
    if seen(path) != written_sha256:
        raise UsageError(f"{path} has changed since it was written; nothing was restored", hint=f"its backup: {backup}")
    try:
        os.replace(backup, path)
    except OSError as error:
        raise UsageError(
            f"can not restore {path}: {error.strerror}", hint=f"its backup is {backup}: copy it over the file"
        ) from error


def python_differences(old: str, new: str, entry: str) -> list[str]:
    """Return what callers of the old file would miss in the new file, as texts; [] if the new file is a drop-in
    replacement. Compared are name, decorators and arguments of the kernel, the imports at the top level (what is
    imported, and as which name), and the public names defined there. The new file may have more imports and more public
    names. Raise SyntaxError if one of the texts is not Python.
    """
    before, after = signature(old, entry), signature(new, entry)
    if not before:
        return [f"{NO_KERNEL} ({entry})" if entry else NO_KERNEL]
    found = [] if before == after else ["name, decorators or arguments of its kernel differ"]
    had, has = dict(_imported(old)), dict(_imported(new))
    lost = sorted(f"{name} ({source})" for name, source in had.items() if has.get(name) != source)
    if lost:
        found.append(f"these imports differ: {', '.join(lost)}")
    gone = sorted(_defined(old) - _defined(new))
    if gone:
        found.append(f"it does not define {', '.join(gone)}")
    return found


def c_differences(old: str, new: str, entry: str) -> list[str]:
    """Return what callers of a C kernel would notice, as texts: changes of result, parameters or included headers; []
    if they would notice nothing.
    """
    name = entry or "kernel"
    before, after = _declaration(old, name), _declaration(new, name)
    if not before:
        return [f"{NO_KERNEL} ({name})"]
    found = [] if before == after else ["result or arguments of its kernel differ"]
    lost = sorted(_headers(old) - _headers(new))
    if lost:
        found.append(f"these headers are missing: {', '.join(lost)}")
    return found


def _imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, imported object) for each name that an import statement at the top level of the file binds."""
    for node in parse(text).body:
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name, one.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for one in node.names:
                yield (one.asname or one.name) if one.name != "*" else f"* of {module}", f"{module}.{one.name}"


def _defined(text: str) -> set[str]:
    """Return the public names that definitions and assignments at the top level bind."""
    found = set()
    for node in parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def _declaration(text: str, name: str) -> str:
    """Return the result type and the parameters of a C function as tokens; "" if the source does not define the
    function.

    ``restrict`` is left out, because callers do not see it.
    """
    found = re.search(rf"([\w \t*]+?)\b{re.escape(name)}\s*\(([^)]*)\)\s*\{{", without_comments(text))
    if found is None:
        return ""
    tokens = re.findall(r"\w+|[^\w\s]", f"{found[1]} {name} ( {found[2]} )")
    return " ".join(token for token in tokens if token not in ("restrict", "__restrict", "__restrict__"))


def _headers(text: str) -> set[str]:
    return set(re.findall(r"^[ \t]*#[ \t]*include\s*([<\"][^>\"\n]+[>\"])", without_comments(text), re.MULTILINE))
