"""Addresses of the console with names that may contain anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode


def link(path: str, **query: str | int | Sequence[str] | None) -> str:
    """Return a path with a query; None, empty texts and empty lists are left out, and a list gives its name
    several times.
    """
    given = {name: value for name, value in query.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


# The text that a person types before a change that can't be undone. Pure.

INSTEAD: Final = "delete"
"""The word that stands for a name that can't be typed, such as one with a line break."""


def typed_for(name: str) -> str:
    """Return the name itself, or a word where a keyboard can't type the name."""
    return name if name.isprintable() and name == name.strip() and name else INSTEAD
