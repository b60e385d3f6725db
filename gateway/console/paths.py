"""The addresses of pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode


def address(path: str, **query: Any) -> str:
    """Return an address of the console with a query; values of None and empty texts are left out."""
    given = {name: value for name, value in query.items() if value not in {None, ""}}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def topic_path(topic: str) -> str:
    """Return the address of a topic's page."""
    return f"/topics/{quote(topic, safe='')}"


def topic_settings_path(topic: str) -> str:
    """Return the address of a topic's settings."""
    return f"{topic_path(topic)}/settings"


def records_path(topic: str) -> str:
    """Return the address of a topic's records."""
    return f"/records/{quote(topic, safe='')}"
