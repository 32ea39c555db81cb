"""What others rely on in a kernel file, and how a new text of it differs there. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from acceld.watch.hashes import C_COMMENT, signature

NO_KERNEL = "the file has no kernel of that name"


def python_differences(old: str, new: str, entry: str) -> list[str]:
    """What the old file offers and the new one does not, in words; empty for a drop-in. SyntaxError where one is no Python.

    Counted are name, decorators and arguments of the kernel, everything imported at the top level (from where, under
    which name), and the names defined there that do not begin with an underscore. The new file may import and define more.
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
    """The same for C: the kernel's parameters, and the headers that are included."""
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
    """Names bound by imports at the top level, with what they stand for."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name, one.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for one in node.names:
                yield (one.asname or one.name) if one.name != "*" else f"* of {module}", f"{module}.{one.name}"


def _defined(text: str) -> set[str]:
    """Public names that definitions and assignments bind at the top level."""
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def _plain_c(text: str) -> str:
    return C_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)


def _declaration(text: str, name: str) -> str:
    """Result and parameters of a C function as tokens, without ``restrict``, which callers do not see."""
    found = re.search(rf"([\w \t*]+?)\b{re.escape(name)}\s*\(([^)]*)\)\s*\{{", _plain_c(text))
    if found is None:
        return ""
    tokens = re.findall(r"\w+|[^\w\s]", f"{found[1]} {name} ( {found[2]} )")
    return " ".join(token for token in tokens if token not in ("restrict", "__restrict", "__restrict__"))


def _headers(text: str) -> set[str]:
    return set(re.findall(r"^[ \t]*#[ \t]*include\s*([<\"][^>\"\n]+[>\"])", _plain_c(text), re.MULTILINE))
