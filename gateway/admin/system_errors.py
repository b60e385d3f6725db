"""Errors of the system in sentences for a person."""

from __future__ import annotations


def in_words(error: Exception) -> str:
    """Return what an error says, with the file that it is about and without the number that the system has for it."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
