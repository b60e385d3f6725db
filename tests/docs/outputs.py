"""Compares what a page says that a command prints with what it printed."""

from __future__ import annotations

import re
import textwrap
from difflib import unified_diff

VARYING = (
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min|h)\b"), "DURATION"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?"), "TIME"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)
"""What differs from run to run: process ids, durations, times, topic ids, and the widths of columns that hold
these.
"""
NUMBER = re.compile(r"\d[\d,.]*")


def differences(told: str, printed: str, *, numbers_vary: bool = False) -> list[str]:
    """Return the lines in which a page and the output differ, as a difference of two files; empty if they
    agree.

    With `numbers_vary` any number equals any other.
    """
    return list(
        unified_diff(
            _lines(told, numbers_vary), _lines(printed, numbers_vary), "the page", "the output", lineterm=""
        )
    )


def is_part(block: str, file: str) -> bool:
    """Return whether whole lines of a file are a block, which may leave out an indentation that all its lines
    have.
    """
    lines = file.splitlines()
    wanted = block.splitlines()
    places = range(len(lines) - len(wanted) + 1)
    return any(
        textwrap.dedent("\n".join(lines[at : at + len(wanted)])).splitlines() == wanted for at in places
    )


def _lines(text: str, numbers_vary: bool) -> list[str]:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    if numbers_vary:
        text = NUMBER.sub("N", text)
    return [line.strip() for line in text.splitlines() if line.strip()]
