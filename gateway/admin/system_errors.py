"""Errors of the system in sentences for a person."""

from __future__ import annotations


def in_words(error: Exception) -> str:
    """Return the text of an error with the file that the error is about, and without the system's error
    number.
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
