"""``acceld completion``: print a shell script that completes commands, flags and values such as run ids; or print the
manual page.
"""

from __future__ import annotations

import argparse
import re

from acceld.cli.connect import records
from acceld.errors import AcceldError

SHOWN = 50
"""Limit on the ids that are offered; the newest come first."""
SHELLS = ("bash", "zsh", "fish")
HINTS = {
    "bash": 'eval "$(acceld completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(acceld completion zsh)" in ~/.zshrc, after compinit',
    "fish": "acceld completion fish > ~/.config/fish/completions/acceld.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "shell", choices=(*SHELLS, "man", "values"), help="; ".join(f"{shell}: {hint}" for shell, hint in HINTS.items())
    )
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="with values: a command, and the word before the cursor"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script or the manual page, and return the exit code."""
    if arguments.shell == "values":
        print("\n".join(values(*(arguments.words or [""])[:2])))
        return 0
    print({"bash": _bash, "zsh": _zsh, "fish": _fish, "man": _man}[arguments.shell](), end="")
    return 0


def flags() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Return, as a dict by command, its help line and its flags with their help lines."""
    from acceld.cli.main import COMMANDS, parser_of

    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for name, command in COMMANDS.items():
        entries = []
        for action in parser_of(name)._actions:
            text = (action.help or "").replace("%%", "%") if action.help != argparse.SUPPRESS else ""
            entries += [(option, text) for option in action.option_strings]
        found[name] = (command.help, entries)
    return found


def values(command: str, before: str = "") -> list[str]:
    """Return the words that may follow the word ``before``: an option's choices, or ids and workloads for an
    argument.

    The list is empty if the history can not be read, because completion must not print errors.
    """
    from acceld.cli.main import COMMANDS, parser_of

    if command not in COMMANDS:
        return []
    actions = parser_of(command)._actions
    chosen = [one for one in actions if before in one.option_strings and one.nargs != 0]
    kinds: set[str] = set()
    found: list[str] = []
    for action in chosen or [one for one in actions if not one.option_strings]:
        found += map(str, action.choices or ())
        kinds |= set(str(action.metavar or action.dest.upper()).split("|"))
    if kinds & {"WORKLOAD", "NAME"} and (command == "workloads" or "WORKLOAD" in kinds):
        found += _workloads()
    for letter, table in (("r", "runs"), ("c", "candidates"), ("i", "insights")):
        if any(re.fullmatch(rf"{letter}\d+", kind) for kind in kinds):
            found += [f"{letter}{number}" for number in _newest(table)]
    return found


def _workloads() -> list[str]:
    from acceld import config
    from acceld.workloads import find_workloads

    return sorted(find_workloads(config.load().config.paths.workloads))


def _newest(table: str) -> list[int]:
    try:
        rows = records(None, f"SELECT id FROM {table} ORDER BY id DESC LIMIT {SHOWN}")
    except AcceldError:
        return []
    return [row["id"] for row in rows]


def _bash() -> str:
    known = flags()
    cases = "\n".join(
        f"    {name}) words='{' '.join(option for option, _ in entries)}' ;;" for name, (_, entries) in known.items()
    )
    return f"""_acceld() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(known)}' -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$(acceld completion values "${{COMP_WORDS[1]}}" -- \\
         "${{COMP_WORDS[COMP_CWORD-1]}}" 2>/dev/null)" -- "$current")) ;;
  esac
}}
complete -o default -F _acceld acceld
"""


def _zsh() -> str:
    known = flags()
    commands = "\n".join(f"    {_quoted(f'{name}:{about}')}" for name, (about, _) in known.items())
    cases = "\n".join(
        f"    {name}) flags=({' '.join(_quoted(f'{option}:{text}') for option, text in entries)}) ;;"
        for name, (_, entries) in known.items()
    )
    return f"""_acceld() {{
  local -a commands flags
  commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
{cases}
  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option flags
  else
    local -a found
    found=(${{(f)"$(acceld completion values $words[2] -- $words[CURRENT-1] 2>/dev/null)"}})
    (( $#found )) && compadd -a found
    _files
  fi
}}
compdef _acceld acceld
"""


def _fish() -> str:
    lines = []
    for name, (about, entries) in flags().items():
        lines.append(f"complete -c acceld -n __fish_use_subcommand -f -a {name} -d {_quoted(about)}")
        for option, text in entries:
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c acceld -n '__fish_seen_subcommand_from {name}' {kind} -d {_quoted(text)}")
        ask = f"(acceld completion values {name} -- (commandline -opc)[-1] 2>/dev/null)"
        lines.append(f"complete -c acceld -n '__fish_seen_subcommand_from {name}' -a '{ask}'")
    return "\n".join(lines) + "\n"


def _man() -> str:
    """Return the manual page in roff. ``acceld completion man | man -l -`` shows it."""

    def roff(text: str) -> str:
        return text.replace("\\", "\\e").replace("-", "\\-")

    lines = [".TH ACCELD 1", ".SH NAME", "acceld \\- makes accelerator kernels faster"]
    lines += [".SH SYNOPSIS", ".B acceld", "\\fICOMMAND\\fR [options]", ".SH COMMANDS"]
    for name, (about, entries) in flags().items():
        lines += [f".SS {name}", roff(about[0].upper() + about[1:] + ".")]
        for option, text in entries:
            if text:
                lines += [".TP", f".B {roff(option)}", roff(text)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
