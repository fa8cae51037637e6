"""Completion scripts contain every command and option, and shells can run them."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from engine import cli

NOT_INSTALLED = "{0} is not installed. Install it, for example: apt install {0}"


def script(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_the_script(shell, capsys):
    text = script(shell, capsys)
    for command in cli.commands():
        assert command in text
        for action in cli.parser_of(command).actions:
            for spelling in action.option_strings:
                assert spelling.lstrip("-") in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_reads_the_script(shell, capsys):
    if shutil.which(shell) is None:
        pytest.skip(NOT_INSTALLED.format(shell))
    text = script(shell, capsys)
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["engine", "eva"], ["evaluate"]),
        (["engine", "detect", "--agn"], ["--agnostic-nms"]),
        (["engine", "classify", "--top"], ["--top-k"]),
        (["engine", "detect", "pict"], []),
    ],
)
def test_bash_completes(capsys, words, expected):
    if shutil.which("bash") is None:
        pytest.skip(NOT_INSTALLED.format("bash"))
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _engine"
    text = script("bash", capsys) + ask + '; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("engine eva", ["evaluate"]),
        ("engine detect --agn", ["--agnostic-nms"]),
        ("engine classify --top", ["--top-k"]),
        ("engine detect pict", ["pictures/"]),
    ],
)
def test_fish_completes(capsys, tmp_path, line, expected):
    if shutil.which("fish") is None:
        pytest.skip(NOT_INSTALLED.format("fish"))
    (tmp_path / "pictures").mkdir()
    text = f"{script('fish', capsys)}\ncomplete -C '{line}'"
    command = ["fish", "--no-config", "-c", text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert [each.split("\t")[0] for each in done.stdout.splitlines()] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("engine eva", "engine evaluate "),
        ("engine detect --agn", "engine detect --agnostic-nms "),
        ("engine detect pict", "engine detect pictures/"),
    ],
)
def test_zsh_completes(capsys, tmp_path, line, expected):
    """Press Tab in a terminal and read the completed command line."""
    if shutil.which("zsh") is None:
        pytest.skip(NOT_INSTALLED.format("zsh"))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "engine.zsh").write_text(script("zsh", capsys))
    begin = "PS1=; unsetopt prompt_sp; autoload -Uz compinit; compinit -u -D; . ./engine.zsh"
    # The widget writes the completed line to a file, because the echo has control sequences.
    begin += '; show() { zle expand-or-complete; print -r -- "<$BUFFER>" > told; zle accept-line }'
    begin += "; zle -N show; bindkey '^X' show; print ready > ready"
    main, other = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"], cwd=tmp_path, stdin=other, stdout=other, stderr=other
    ) as shell:
        os.close(other)
        try:
            os.write(main, f"{begin}\n".encode())
            wait_for(tmp_path / "ready", main)
            os.write(main, f"{line}\x18".encode())
            assert wait_for(tmp_path / "told", main) == f"<{expected}>\n"
        finally:
            shell.kill()
            os.close(main)


def wait_for(path, terminal):
    """Wait for the file and return its text; reading the terminal keeps the shell running."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)
        if path.is_file() and (text := path.read_text()):
            return text
    raise AssertionError(f"{path.name} did not appear")


def test_an_unknown_shell_is_refused(capsys):
    assert cli.main(["completion", "bsh"]) == 2
    assert "Did you mean 'bash'?" in capsys.readouterr().err
