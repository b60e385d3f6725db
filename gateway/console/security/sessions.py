"""The sessions of people who have logged in. They are in memory only, and end with the console."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from gateway.admin.remote.client_security import ClientSecurity

MOST_SESSIONS: Final = 200
"""Sessions at a time; the one that was used longest ago ends when another begins."""
IDLE_S: Final = 30 * 60.0
"""Time without a request after which a session ends."""
LONGEST_S: Final = 12 * 3600.0
"""Time after which a session ends although it is used."""


@dataclass(slots=True)
class _Session:
    """A login, and when it began and was used."""

    security: ClientSecurity
    began: float
    used: float


class Sessions:
    """Maps random session ids to logins. Thread-safe."""

    def __init__(self) -> None:
        """Begin without sessions."""
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, security: ClientSecurity) -> str:
        """Return the id of a new session."""
        session_id = new_id()
        now = time.monotonic()
        with self._lock:
            self._sessions[session_id] = _Session(security, now, now)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session_id

    def login(self, session_id: str) -> ClientSecurity | None:
        """Return the login of a session, and count this as its use; None when the session has ended."""
        now = time.monotonic()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return None
            if now - session.used > IDLE_S or now - session.began > LONGEST_S:
                del self._sessions[session_id]
                return None
            session.used = now
            self._sessions.move_to_end(session_id)
            return session.security

    def end(self, session_id: str) -> ClientSecurity | None:
        """End a session; return its login when no other session has the same."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
            if session is None or any(
                other.security == session.security for other in self._sessions.values()
            ):
                return None
            return session.security


def new_id() -> str:
    """Return a random id that nobody can guess."""
    return secrets.token_urlsafe(32)
