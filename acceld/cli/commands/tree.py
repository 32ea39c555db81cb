"""``acceld tree``: print a run's candidates as a tree."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_forms
from acceld.cli.connect import reading, run_number
from acceld.cli.output import print_csv, print_json, print_json_lines, say

COLUMNS = (
    "candidate",
    "parent",
    "iteration",
    "status",
    "latency_us",
    "speedup",
    "gate",
    "plan",
    "title",
    "partner",
    "improved",
    "parent_improved",
    "verdict",
    "parent_verdict",
)
SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="r12", help="the run, by id or name")
    parser.add_argument("--all", action="store_true", help=f"every candidate, not the {SHOWN} best of each parent")
    form = add_forms(parser)
    form.add_argument("--dot", action="store_true", help="for Graphviz")
    form.add_argument("--mermaid", action="store_true", help="for Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Print the tree."""
    number = run_number(arguments.home, arguments.run)
    with reading(arguments.home) as history:
        found: dict[str, Any] = history.get(f"/v1/runs/{number}/tree")
    nodes = [dict(zip(COLUMNS, row, strict=True)) for row in found["nodes"]]
    if arguments.json:
        print_json({"run": number} | {key: found[key] for key in ("source", "best", "beam")} | {"candidates": nodes})
    elif arguments.jsonl:
        print_json_lines(nodes)
    elif arguments.csv:
        print_csv(COLUMNS, found["nodes"])
    elif arguments.dot or arguments.mermaid:
        print("\n".join(_graph(nodes, found["best"], mermaid=arguments.mermaid)))
    else:
        if not nodes:
            say(f"r{number} has no candidates yet; acceld show r{number} shows its state")
        else:
            made = [
                node for node in nodes if node["parent"]
            ]  # the baseline is not counted as a candidate, as in acceld show
            counts = Counter(node["status"] for node in made if node["status"])
            best = f", best c{found['best']}" if found["best"] else ""
            say(
                f"r{number}: {figures.many(len(made), 'candidate')}{best}; {figures.counted(counts) or 'none evaluated yet'}"
            )
        children = _families(nodes)
        kept = {found["best"], *found["beam"]}
        folded = _print(children, kept, found["best"], found["source"], every=arguments.all)
        if folded:
            say(f"{figures.many(folded, 'candidate')} folded; --all shows all")
    return 0


def _families(nodes: list[dict[str, Any]]) -> dict[int | None, list[dict[str, Any]]]:
    """Return a mapping from the parent's id to its children, fastest first. The key None has the candidates
    without a parent.
    """
    families: dict[int | None, list[dict[str, Any]]] = {}
    for node in nodes:
        families.setdefault(node["parent"], []).append(node)
    for family in families.values():
        family.sort(key=lambda node: (node["latency_us"] is None, node["latency_us"] or 0.0, node["candidate"]))
    return families


def _print(
    children: dict[int | None, list[dict[str, Any]]], kept: set[int], best: int | None, source: str, *, every: bool
) -> int:
    folded = 0
    stack: list[tuple[dict[str, Any] | str, str, str]] = [(root, "", "") for root in reversed(children.get(None, []))]
    while stack:
        node, guide, below = stack.pop()
        if isinstance(node, str):
            print(f"{guide}{node}")
            continue
        print(f"{guide}{_line(node, kept, best, source)}")
        family = children.get(node["candidate"], [])
        shown = family if every else [one for i, one in enumerate(family) if i < SHOWN or one["candidate"] in kept]
        rest = len(family) - len(shown)
        folded += rest
        entries: list[tuple[dict[str, Any] | str, str, str]] = []
        for place, one in enumerate(shown):
            last = place == len(shown) - 1 and not rest
            entries.append((one, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
        if rest:
            entries.append((f"… {rest} more", below + "└─ ", ""))
        stack += reversed(entries)
    return folded


def _line(node: dict[str, Any], kept: set[int], best: int | None, source: str) -> str:
    status = figures.status(node["status"]) if node["status"] else "· not evaluated"
    parts = [f"c{node['candidate']}", status]
    if node["latency_us"] is not None:
        parts += [
            figures.brief_latency(node["latency_us"], source),
            figures.brief_gain(node["speedup"], node["verdict"]),
        ]
    mark = "★ best" if node["candidate"] == best else "● beam" if node["candidate"] in kept else ""
    title = f"{node['title'] or ''}{figures.crossed(node['partner'])}"
    return "  ".join(part for part in (*parts, mark, title) if part)


def _graph(nodes: list[dict[str, Any]], best: int | None, *, mermaid: bool) -> list[str]:
    lines = ["graph TD" if mermaid else "digraph run {"]
    for node in nodes:
        speedup = (
            f" {figures.brief_gain(node['speedup'], node['verdict'])}"
            if node["speedup"]
            else f" {node['status'] or ''}"
        )
        name = f"c{node['candidate']}"
        label = f"{name}{speedup}{' best' if node['candidate'] == best else ''}"
        lines.append(f'  {name}["{label}"]' if mermaid else f'  {name} [label="{label}"];')
        if node["parent"]:
            lines.append(f"  c{node['parent']} --> {name}" if mermaid else f"  c{node['parent']} -> {name};")
        if node["partner"]:  # a dashed line from the second parent of a crossover
            line = f"  c{node['partner']} -.-> {name}" if mermaid else f"  c{node['partner']} -> {name} [style=dashed];"
            lines.append(line)
    return lines if mermaid else [*lines, "}"]
