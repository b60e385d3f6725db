"""Reads files of Java properties, the format of Kafka's client configurations. Source: java.util.Properties.load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_COMMENT: Final = re.compile(r"[ \t\f]*[#!]|[ \t\f]*$")
_ENTRY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_SPECIAL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a text; the last value of a name counts."""
    properties = {}
    for line in _logical_lines(text):
        found = _ENTRY.fullmatch(line)
        assert found is not None
        properties[_unescaped(found[1])] = _unescaped(found[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments; a line that ends with an odd number of backslashes is joined with the
    next line.
    """
    whole = ""
    for line in _LINE_END.split(text):
        if not whole and _COMMENT.match(line):
            continue
        part = line.lstrip(" \t\f")
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        yield whole + part
        whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _SPECIAL.get(found[2], found[2]), text
    )
