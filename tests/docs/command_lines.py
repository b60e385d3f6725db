"""Checks shell commands of the pages without running them: `seqgate` by its own parser, `make` by the
Makefile, `pip` by the extras.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import typer.main

from seqgate.gateway.cli import app
from seqgate.gateway.config.table import BY_TOPIC_NAME, setting_named
from tests.support.kafka_tools import TOOL_CLASSES
from tests.support.markdown import REPOSITORY

PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|…|\.\.\.")
"""A word that stands for whatever the reader puts there."""
HELP = frozenset(("-h", "--help"))
ENDS = frozenset(("|", "||", "&&", ";", "&", "(", ")", ";;", "|&"))
BEFORE_COMMANDS = frozenset(
    ("sudo", "exec", "time", "if", "then", "else", "do", "while", "until", "!", "nohup")
)
ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
TARGET = re.compile(r"^([\w-]+)(?:[ \w-]*):(?!=)", re.MULTILINE)
EXTRA = re.compile(r"(?:seqgate|\.)\[([\w,]+)\]")


def faults(script: str) -> list[str]:
    """Return a sentence for each command of a shell script that can't be right."""
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        return [checked.stderr.strip()]
    return [fault for words in commands(script) if (fault := command_fault(words))]


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, without assignments and redirections."""
    for line in script.replace("\\\n", " ").splitlines():
        words: list[str] = []
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        try:
            tokens = list(lexer)
        except ValueError:  # a quotation that ends on another line
            continue
        skipped = False
        for token in tokens:
            if token in ENDS:
                if words:
                    yield words
                words, skipped = [], False
            elif set(token) <= set("<>&"):
                skipped = True  # the file of a redirection
                if words and words[-1].isdigit():
                    words.pop()
            elif skipped:
                skipped = False
            elif words or not (ASSIGNMENT.fullmatch(token) or token in BEFORE_COMMANDS):
                words.append(token)
        if words:
            yield words


def command_fault(words: Sequence[str], *, is_whole: bool = True) -> str | None:
    """Return what is wrong with the words of a simple command, or None. Other programs than the project's are
    not known.

    A sentence may name a command without its arguments (`is_whole` False).
    """
    program = words[0].rpartition("/")[2]
    if program == "seqgate":
        return seqgate_fault(words[1:], is_whole=is_whole)
    if program == "make":
        return _make_fault(words[1:])
    if program in {"pip", "pip3"} or words[1:3] == ["-m", "pip"]:
        return _extras_fault(words)
    if program.startswith("python") and words[1:2] == ["-m"] and len(words) > 2:
        return _module_fault(words[2])
    tool = program.removesuffix(".sh")
    if program.startswith("kafka-") and tool not in TOOL_CLASSES:
        return f"{tool} is no tool of Kafka's"
    return None


def seqgate_fault(words: Sequence[str], *, is_whole: bool = True) -> str | None:
    """Return what is wrong with the words behind `seqgate`, or None.

    Names of commands and options, missing values, surplus arguments and the names of settings are checked;
    files need not exist, and a placeholder may stand for any value.
    """
    command = _seqgate()
    rest, path = list(words), ["seqgate"]
    while hasattr(command, "commands"):
        if not rest:
            return None  # a group without a command prints its help
        name = rest.pop(0)
        if name.startswith("-"):
            known = {option for each in command.params for option in each.opts}
            return None if name in known | HELP else f"{' '.join(path)} has no option {name}"
        if PLACEHOLDER.fullmatch(name):
            return None
        if name not in command.commands:
            return f"{' '.join(path)} has no command {name}"
        command = command.commands[name]
        path.append(name)
    shown = " ".join(path)
    context = command.context_class(command, info_name=shown)
    try:
        values, surplus, _ = command.make_parser(context).parse_args([*rest])
    except Exception as error:  # click's own errors have no common public base in typer
        return f"{shown}: {getattr(error, 'message', '') or error}"
    if surplus and not any(PLACEHOLDER.fullmatch(word) for word in rest):
        return f"{shown} takes no further argument: {' '.join(surplus)}"
    missing = [each for each in command.params if each.required and not values.get(each.name)]
    if is_whole and missing:
        return f"{shown} needs {missing[0].metavar or missing[0].name.upper()}"
    for option, value in itertools.pairwise(rest):
        name = value.partition("=")[0]
        if option == "--set" and not PLACEHOLDER.fullmatch(name) and not _is_setting(name, path):
            return f"{shown}: --set names no setting: {name}"
    return None


@functools.cache
def _seqgate() -> Any:
    """Return the parser of the command line, which takes a tenth of a second to make."""
    return typer.main.get_command(app)


def _is_setting(name: str, path: Sequence[str]) -> bool:
    """Return whether a command sets a setting of this name: of a gateway, or of a topic."""
    return setting_named(name) is not None if path[1] == "serve" else name in BY_TOPIC_NAME


@functools.cache
def _targets() -> frozenset[str]:
    return frozenset(TARGET.findall((REPOSITORY / "Makefile").read_text(encoding="utf-8")))


def _make_fault(words: Sequence[str]) -> str | None:
    missing = [
        word for word in words if "=" not in word and not word.startswith("-") and word not in _targets()
    ]
    return f"the Makefile has no target {missing[0]}" if missing else None


def _extras_fault(words: Sequence[str]) -> str | None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    named = {extra for word in words for found in EXTRA.findall(word) for extra in found.split(",")}
    return f"there is no extra {min(named - extras)}" if named - extras else None


def _module_fault(module: str) -> str | None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    return None if found else f"there is no module {module}"
