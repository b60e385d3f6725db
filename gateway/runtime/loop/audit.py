"""The audit log: one JSON object per line for each refused request and each administrative change.

{"event": "refused", "principal": "User:alice", "address": "192.0.2.7", "listener": "EXTERNAL", "client_id":
"app-1",
 "request": "Fetch", "operation": "READ", "resource_type": "TOPIC", "resource": "orders", "count": 1}

A refusal is written at once. Equal refusals of the next minute are counted, and written as one line at its
end. Failed logins are treated alike, with a limit of their own, because all can cause them:

{"event": "login_failed", "principal": "User:alice", "address": "192.0.2.7", "listener": "EXTERNAL",
 "mechanism": "SCRAM-SHA-512", "reason": "Authentication failed …", "count": 1}
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from seqgate.gateway.runtime.loop.log_output import AUDIT

INTERVAL_S: Final = 60.0
"""The time for which repeated refusals are counted before their number is written."""
KINDS: Final = 1_000
"""Different refusals that get a count of their own within one interval; further ones share one count."""
LONGEST_TEXT: Final = 512
"""Longer texts of clients are cut."""

logger = logging.getLogger(AUDIT)


class Requester(NamedTuple):
    """The sender of a request, its address, and the name of the request."""

    principal: str
    address: str
    listener: str
    client_id: str
    request: str


class DeniedRight(NamedTuple):
    """A right that a requester, of these first fields, lacks."""

    principal: str
    address: str
    listener: str
    client_id: str
    request: str
    operation: str
    resource_type: str
    resource: str


class FailedLogin(NamedTuple):
    """A failed login: the claimed principal (None for an unknown user), its address, and the reason."""

    principal: str | None
    address: str
    listener: str
    mechanism: str
    reason: str


class _Repeats:
    """The lines of one event within an interval: each is written at once, and its repeats are counted."""

    def __init__(self, event: str) -> None:
        self._event = event
        self.counts: dict[DeniedRight | FailedLogin, int] = {}
        """The repeats of each line that are not written yet; 0 for a line that was not repeated."""
        self._others = 0

    def note(self, thing: DeniedRight | FailedLogin) -> None:
        """Write a line, or count it if the same line was written within the interval."""
        repeats = self.counts.get(thing)
        if repeats is not None:
            self.counts[thing] = repeats + 1
        elif len(self.counts) < KINDS:
            self.counts[thing] = 0
            self._write(thing, 1)
        else:
            self._others += 1

    def end_interval(self) -> None:
        """Write the counted repeats, and begin the next interval."""
        counts, others = self.counts, self._others
        self.counts, self._others = {}, 0
        for thing, count in counts.items():
            if count:
                self._write(thing, count)
        if others:
            logger.info(json.dumps({"event": self._event, "others": others}))

    def _write(self, thing: DeniedRight | FailedLogin, count: int) -> None:
        _write({"event": self._event, **thing._asdict(), "count": count})


class AuditLog:
    """Writes the audit lines. When the audit log is off, refusals are not counted either."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_on: bool) -> None:
        self.is_on = is_on
        self._loop = loop
        self._refusals = _Repeats("refused")
        self._failed_logins = _Repeats("login_failed")
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, refusal: DeniedRight) -> None:
        if self.is_on:
            self._begin_interval()
            self._refusals.note(DeniedRight(*map(_cut, refusal)))  # cut, to remember less

    def login_failed(self, login: FailedLogin) -> None:
        if self.is_on:
            self._begin_interval()
            principal = login.principal and _cut(login.principal)
            mechanism, reason = _cut(login.mechanism), _cut(login.reason)
            self._failed_logins.note(login._replace(principal=principal, mechanism=mechanism, reason=reason))

    def changed(self, requester: Requester, action: str, things: Sequence[str], *, others: int = 0) -> None:
        """Write an administrative change and the names of what it changed; `others` counts unnamed ones."""
        if self.is_on:
            who = {name: _cut(text) for name, text in requester._asdict().items()}
            line = {"event": "changed", **who, "action": action, "resources": list(map(_cut, things))}
            _write({**line, "others": others} if others else line)

    def close(self) -> None:
        """Write the lines that count repeated events, for the repeats since the last such lines."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_interval()

    def _begin_interval(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._end_interval)

    def _end_interval(self) -> None:
        self._timer = None
        self._refusals.end_interval()
        self._failed_logins.end_interval()


def _write(line: dict[str, Any]) -> None:
    # JSON in ASCII has no other control character
    logger.info(json.dumps(line).replace("\x7f", "\\u007f"))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
