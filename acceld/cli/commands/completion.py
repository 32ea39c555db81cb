"""``acceld completion``: a script that completes commands and their flags."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")
HINTS = {
    "bash": 'eval "$(acceld completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(acceld completion zsh)" in ~/.zshrc, after compinit',
    "fish": "acceld completion fish > ~/.config/fish/completions/acceld.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=SHELLS, help="; ".join(f"{shell}: {hint}" for shell, hint in HINTS.items()))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](), end="")
    return 0


def flags() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Every command with its line in the overview and its flags with theirs."""
    from acceld.cli.main import COMMANDS, parser_of

    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for name, command in COMMANDS.items():
        entries = []
        for action in parser_of(name)._actions:
            text = (action.help or "").replace("%%", "%") if action.help != argparse.SUPPRESS else ""
            entries += [(option, text) for option in action.option_strings]
        found[name] = (command.help, entries)
    return found


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
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
