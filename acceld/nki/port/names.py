"""Find the function or constant of the legacy API that a name in a kernel's file refers to, under any import alias."""

from __future__ import annotations

import ast

MODULES = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.typing": "nt",
    "neuronxcc.nki.compiler": "ncc",
    "numpy": "np",
}
INSIDE = {"nki.language": "nl", "nki.isa": "nisa", "nki.typing": "nt", "nki.compiler": "ncc"}


class Names:
    """Resolve the names that a file imports, at its top or inside functions."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[str, str] = {}
        if not any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body):
            self._known |= {short: short for short in ("nl", "nisa", "nki", "nt", "np")} | {"par_dim": "nl.par_dim"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.name in MODULES and one.asname:
                        self._known[one.asname] = MODULES[one.name]
                    elif one.name in MODULES and one.name.startswith("numpy"):
                        self._known[one.name] = MODULES[one.name]
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                short = MODULES.get(node.module)
                for one in node.names:
                    whole = MODULES.get(f"{node.module}.{one.name}")
                    if whole is not None:
                        self._known[one.asname or one.name] = whole
                    elif short is not None and short != "np":
                        self._known[one.asname or one.name] = f"{short}.{one.name}"

    @property
    def imported(self) -> dict[str, str]:
        """Return the module or function that each imported name refers to, as a dict by the name."""
        return dict(self._known)

    def of(self, node: ast.expr) -> str:
        """Return the name of the API's function or constant to which an expression refers, such as ``nl.load``; empty
        if the expression refers to something else.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(node.id)
        parts.reverse()
        if parts[0] == "neuronxcc" and len(parts) > 2 and parts[1] == "nki":
            parts = ["nki", *parts[2:]]
        elif parts[0] in self._known:
            parts[0] = self._known[parts[0]]
        else:
            return ""
        text = ".".join(parts)
        for long, short in INSIDE.items():
            if text == long or text.startswith(long + "."):
                return short + text[len(long) :]
        return text
