"""Addresses of the console with names that may contain anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode


def link(path: str, **query: str | int | Sequence[str] | None) -> str:
    """Return a path with a query; None, empty texts and empty lists are left out, and a list gives its name several times."""
    given = {name: value for name, value in query.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path
