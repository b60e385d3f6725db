"""Parses blocks that are no programs: settings by the gateway's own code, everything else by a parser of its
language.
"""

from __future__ import annotations

import configparser
import json
import re
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import yaml

from seqgate.gateway.admin.remote.client_security import parse_properties
from seqgate.gateway.config.load import load_config
from seqgate.gateway.config.setting import ConfigError
from seqgate.gateway.config.table import setting_named
from tests.docs.command_lines import faults as command_faults
from tests.support.markdown import Block
from tests.support.promql import used

OF_OTHER_PROGRAMS = re.compile(r"\[(?:project|tool|build-system|package|dependencies|dev-dependencies)\b")
"""A table that begins a TOML file of another program."""
UNIT_COMMANDS = ("ExecStart", "ExecStartPre", "ExecReload", "ExecStop")


def faults(block: Block) -> list[str]:
    """Return a sentence for each thing that is wrong in a block whose language has a parser."""
    return list(PARSERS[block.language](block.text))


def _output(text: str) -> Iterator[str]:
    """Check the commands of a transcript; what a command printed is taken as it is."""
    for line in text.splitlines():
        if line.startswith("$ "):
            yield from command_faults(line[2:])


def _toml(text: str) -> Iterator[str]:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        yield str(error)
        return
    if OF_OTHER_PROGRAMS.search(text):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        try:
            load_config(Path(file.name))
        except ConfigError as error:
            yield str(error)


def _ini(text: str) -> Iterator[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        yield str(error)
        return
    for section in parser.sections():
        for name, value in parser.items(section):
            if name in UNIT_COMMANDS:
                yield from command_faults(value)


def _properties(text: str) -> Iterator[str]:
    """Check a file of properties: the gateway's settings, or those of Kafka's clients, which have other
    names.
    """
    properties = parse_properties(text)
    if not properties:
        yield "no property"
    for name in properties:
        if name.startswith("seqgate.") and setting_named(name) is None:
            yield f"there is no setting {name}"


def _yaml(text: str) -> Iterator[str]:
    try:
        if not [document for document in yaml.safe_load_all(text) if document is not None]:
            yield "no document"
    except yaml.YAMLError as error:
        yield str(error)


def _json(text: str) -> Iterator[str]:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        try:
            for line in filter(None, text.splitlines()):
                json.loads(line)
        except json.JSONDecodeError as error:
            yield str(error)


def _sql(text: str) -> Iterator[str]:
    with sqlite3.connect(":memory:") as database:
        try:
            database.executescript(text)
        except sqlite3.Error as error:
            yield str(error)
    database.close()


def _promql(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if expression := line.partition("#")[0].strip():
            try:
                used(expression)
            except ValueError as error:
                yield str(error)


def _python(text: str) -> Iterator[str]:
    try:
        compile(text, "page", "exec")
    except SyntaxError as error:
        yield str(error)


PARSERS: dict[str, Callable[[str], Iterable[str]]] = {
    "bash": command_faults,
    "ini": _ini,
    "json": _json,
    "promql": _promql,
    "properties": _properties,
    "python": _python,
    "sh": command_faults,
    "sql": _sql,
    "text": _output,
    "toml": _toml,
    "yaml": _yaml,
}
"""What reads a block of each language. A block of another language must be run by a test."""
