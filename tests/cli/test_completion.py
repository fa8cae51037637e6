"""Completion scripts know every command and option, and bash and others read them."""

import shutil
import subprocess

import pytest

from engine import cli


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
        pytest.skip(f"{shell} is not installed")
    text = script(shell, capsys)
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["engine", "cla"], ["classify"]),
        (["engine", "detect", "--agn"], ["--agnostic-nms"]),
        (["engine", "classify", "--top"], ["--top-k"]),
        (["engine", "detect", "pict"], []),
    ],
)
def test_bash_completes(capsys, words, expected):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _engine"
    text = script("bash", capsys) + ask + '; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == expected


def test_an_unknown_shell_is_refused(capsys):
    assert cli.main(["completion", "bsh"]) == 2
    assert "Did you mean 'bash'?" in capsys.readouterr().err
