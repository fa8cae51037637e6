"""Print a completion script for bash, zsh or fish.

eval "$(engine completion bash)"                              # in ~/.bashrc
eval "$(engine completion zsh)"                               # in ~/.zshrc, after compinit
engine completion fish > ~/.config/fish/completions/engine.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from engine.cli import commands, parser_of, summary
from engine.errors import InputError, suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell not in _SCRIPTS:
        hint = suggest(arguments.shell, _SCRIPTS)
        raise InputError(f"shell: expected bash, zsh or fish, got {arguments.shell!r}.{hint}")
    print(*_SCRIPTS[arguments.shell](), sep="\n")
    return 0


def _bash() -> Iterator[str]:
    yield "_engine() {"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} words="
    yield "    if [ $COMP_CWORD -eq 1 ]; then"
    yield f'        words="{" ".join(commands())}"'
    yield "    else"
    yield "        case ${COMP_WORDS[1]} in"
    for command in commands():
        spellings = [each for action in _options(command) for each in action.option_strings]
        yield f'        {command}) words="{" ".join(spellings)}" ;;'
    yield "        esac"
    yield "        case $word in -*) ;; *) words= ;; esac"
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _engine engine"


def _zsh() -> Iterator[str]:
    yield "#compdef engine"
    yield "_engine() {"
    yield "    if (( CURRENT == 2 )); then"
    described = " ".join(_quoted(f"{each}:{summary(each)}") for each in commands())
    yield f"        local -a commands=({described})"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words; (( CURRENT-- ))"
    yield "    case $command in"
    for command in commands():
        yield f"    {command}) _arguments \\"
        for action in _options(command):
            for spelling in action.option_strings:
                help_text = _help(action).replace("[", "(").replace("]", ")").replace(":", " -")
                value = "" if action.nargs == 0 else f":{_metavar(action)}:_files"
                yield f"        {_quoted(f'*{spelling}[{help_text}]{value}')} \\"
        yield "        '*:file:_files' ;;"
    yield "    esac"
    yield "}"
    yield "compdef _engine engine"


def _fish() -> Iterator[str]:
    for command in commands():
        about = _quoted(summary(command))
        yield f"complete -c engine -f -n __fish_use_subcommand -a {command} -d {about}"
    for command in commands():
        for action in _options(command):
            names = " ".join(map(_fish_name, action.option_strings))
            value = "" if action.nargs == 0 else " -r"
            about = _quoted(_help(action))
            when = _quoted(f"__fish_seen_subcommand_from {command}")
            yield f"complete -c engine -n {when} {names}{value} -d {about}"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _options(command: str) -> list[argparse.Action]:
    return [action for action in parser_of(command).actions if action.option_strings]


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("\n", " ")


def _metavar(action: argparse.Action) -> str:
    name = action.metavar or action.dest
    return (" ".join(name) if isinstance(name, tuple) else str(name)).replace(":", " ")


def _fish_name(spelling: str) -> str:
    if spelling.startswith("--"):
        return f"-l {spelling[2:]}"
    return f"-s {spelling[1:]}" if len(spelling) == 2 else f"-o {spelling[1:]}"  # such as -thresh


def _quoted(text: str) -> str:
    """Quote text for any of the three shells."""
    return "'" + text.replace("\\", "").replace("'", r"'\''") + "'"
