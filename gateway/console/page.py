"""A page of the console: its name in the navigation, and its addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gateway.console.answers import Answer
from gateway.console.visit import Visit

Function = Callable[[Visit], Answer]
"""A function of a page. It runs in a thread, may block, and may raise ControlError with a sentence for the person."""


class Section(Enum):
    """A group of pages in the navigation, in the order of the navigation."""

    NOW = ""
    DATA = "Data"
    CLIENTS = "Clients"
    ACCESS = "Access"
    GATEWAYS = "Gateways"


@dataclass(frozen=True, slots=True)
class Look:
    """An address that shows a page (GET).

    `waits_for` is a noun phrase. When the function takes long, the browser shows "Waiting for …" and asks again.
    """

    path: str
    function: Function
    waits_for: str = "the cluster's answer"


@dataclass(frozen=True, slots=True)
class Feed:
    """An address that gives an island its data as JSON, or a file to save (GET)."""

    path: str
    function: Function


@dataclass(frozen=True, slots=True)
class Change:
    """An address that changes something (POST). The form's token is checked before the function runs."""

    path: str
    function: Function


Place = Look | Feed | Change


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `path` is where its entry in the navigation leads; `key` is the letter after `g` that opens the page."""

    title: str
    path: str
    section: Section
    places: tuple[Place, ...]
    key: str | None = None
