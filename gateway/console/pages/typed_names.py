"""The text that a person types before a change that can't be undone. Pure."""

from __future__ import annotations

from typing import Final

INSTEAD: Final = "delete"
"""The word that stands for a name that can't be typed, such as one with a line break."""


def typed_for(name: str) -> str:
    """Return the name itself, or a word where a keyboard can't type the name."""
    return name if name.isprintable() and name == name.strip() and name else INSTEAD
