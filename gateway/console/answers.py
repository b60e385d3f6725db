"""The answers that the functions of a page return. `web` turns an answer into HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class View:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Data:
    """A value that is sent as JSON to an island."""

    value: Any


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page to go to after a change. The page shows `notice`, a sentence, once."""

    path: str
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question before a change.

    The page shows `title`, `sentences` and the rows of `changes` (what, before, after). The answer comes as the same request with
    `visit.is_confirmed`. `typed`: a text that the person must type first. `is_danger`: the change can't be undone.
    """

    title: str
    action: str
    back: str
    sentences: Sequence[str] = ()
    changes: Sequence[tuple[str, str, str]] = ()
    typed: str | None = None
    is_danger: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to save."""

    chunks: Iterator[bytes]
    file_name: str
    content_type: str = "application/octet-stream"


Answer = View | Data | Redirect | Confirmation | Download
