"""The audit log: one JSON object per line for each refused request and each administrative change.

{"event": "refused", "principal": "User:alice", "address": "192.0.2.7", "listener": "EXTERNAL", "client_id": "app-1",
 "request": "Fetch", "operation": "READ", "resource_type": "TOPIC", "resource": "orders", "count": 1}

A refusal is written at once. The same refusals of the next minute are counted, and written as one line at its end.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.runtime.loop.log_rate_limit import AUDIT

INTERVAL_S: Final = 60.0
"""The time for which repeated refusals are counted before their number is written."""
KINDS: Final = 1_000
"""Different refusals that are told apart within one interval; further ones are only counted together."""
LONGEST_TEXT: Final = 512
"""Longer texts of clients are cut."""

logger = logging.getLogger(AUDIT)


class Requester(NamedTuple):
    """Who sent a request, from where, and which request it is."""

    principal: str
    address: str
    listener: str
    client_id: str
    request: str


class Refusal(NamedTuple):
    """A right that a requester lacks."""

    requester: Requester
    operation: str
    resource_type: str
    resource: str


class AuditLog:
    """Writes the lines. Where the log is off nothing is counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_on: bool) -> None:
        self.is_on = is_on
        self._loop = loop
        self._repeats: dict[Refusal, int] = {}
        """The refusals of this interval that were not written yet; 0 for one that was written and not repeated."""
        self._others = 0
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, refusal: Refusal) -> None:
        """Write a refusal, or count it if its like was written within the interval."""
        if not self.is_on:
            return
        refusal = _short(refusal)
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._end_interval)
        repeats = self._repeats.get(refusal)
        if repeats is not None:
            self._repeats[refusal] = repeats + 1
        elif len(self._repeats) < KINDS:
            self._repeats[refusal] = 0
            _write_refusal(refusal, 1)
        else:
            self._others += 1

    def changed(self, requester: Requester, action: str, things: Sequence[str], *, others: int = 0) -> None:
        """Write an administrative change of things; `others` of them are not named."""
        if self.is_on:
            named = {"action": action, "resources": [_cut(thing) for thing in things]}
            _write("changed", requester, {**named, "others": others} if others else named)

    def close(self) -> None:
        """Write what was counted and not written yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_interval()

    def _end_interval(self) -> None:
        self._timer = None
        repeats, others = self._repeats, self._others
        self._repeats, self._others = {}, 0
        for refusal, count in repeats.items():
            if count:
                _write_refusal(refusal, count)
        if others:
            logger.info(json.dumps({"event": "refused", "others": others}))


def _short(refusal: Refusal) -> Refusal:
    """Return the refusal as it is remembered: with texts of clients that are not longer than in the log."""
    requester = Requester(*map(_cut, refusal.requester))
    return refusal._replace(requester=requester, resource=_cut(refusal.resource))


def _write_refusal(refusal: Refusal, count: int) -> None:
    right = {
        "operation": refusal.operation,
        "resource_type": refusal.resource_type,
        "resource": refusal.resource,
        "count": count,
    }
    _write("refused", refusal.requester, right)


def _write(event: str, requester: Requester, more: dict[str, Any]) -> None:
    who = {name: _cut(text) for name, text in requester._asdict().items()}
    # JSON in ASCII has no other control character
    logger.info(json.dumps({"event": event, **who, **more}).replace("\x7f", "\\u007f"))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
