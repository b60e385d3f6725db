"""The sessions of people who have logged in. They are in memory only, and end with the console."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from seqgate.gateway.admin.remote.client_security import ClientSecurity

MOST_SESSIONS: Final = 200
"""Sessions at a time; the one that was used longest ago ends when another begins."""
IDLE_S: Final = 30 * 60.0
LONGEST_S: Final = 12 * 3600.0
"""Time after which a session ends although it is used."""


@dataclass(slots=True)
class _Session:
    security: ClientSecurity
    began: float
    used: float


class Sessions:
    """Maps random session ids to logins. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, security: ClientSecurity) -> str:
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


# The limit of failed logins, against guessing passwords.

FAILURES: Final = 5
"""Failed logins of a name or an address in a window; the next waits until the oldest has left it."""
FAILURES_OF_ALL: Final = 60
"""Failed logins in a window; so a window has no more than this many names and addresses."""
WINDOW_S: Final = 60.0
_ALL: Final = b"all"


class LoginLimit:
    """Counts failed logins by name and by address. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: OrderedDict[bytes, deque[float]] = OrderedDict()
        """The times of failures in the window, by what failed; what failed last is the last."""

    def begin(self, username: str, address: str) -> float:
        """Count this login as failed, until `take_back`, and return 0. While too many have failed, count
        nothing, and return the seconds until it may be tried.
        """
        now = time.monotonic()
        limits = _limits(username, address)
        with self._lock:
            self._drop_old(now)
            wait_s = max(self._wait_of(key, limit, now) for key, limit in limits)
            if wait_s <= 0:
                for key, limit in limits:
                    self._failures.setdefault(key, deque(maxlen=limit)).append(now)
                    self._failures.move_to_end(key)
            return wait_s

    def _wait_of(self, key: bytes, limit: int, now: float) -> float:
        times = self._failures.get(key, ())
        if len(times) < limit:
            return 0.0
        return max(0.0, times[-limit] + WINDOW_S - now)

    def _drop_old(self, now: float) -> None:
        while self._failures:
            key, times = next(iter(self._failures.items()))
            if times and times[-1] + WINDOW_S > now:
                break
            del self._failures[key]

    def take_back(self, username: str, address: str) -> None:
        """Forget a login that has begun, because it did not fail."""
        with self._lock:
            for key, _ in _limits(username, address):
                if times := self._failures.get(key):
                    times.pop()


def _limits(username: str, address: str) -> tuple[tuple[bytes, int], ...]:
    # A form may have a name of megabytes.
    name = hashlib.sha256(username.encode(errors="surrogatepass")).digest()
    return (b"name " + name, FAILURES), (f"address {address}".encode(), FAILURES), (_ALL, FAILURES_OF_ALL)


# Sentences that the next page shows once, such as what a change did.

MOST_NOTICES: Final = 200
"""Notices that wait for their page; the oldest is dropped when another comes."""


class Notices:
    """Keeps sentences under random ids, each for one session. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def keep(self, session_id: str, sentence: str) -> str:
        notice_id = new_id()[:16]
        with self._lock:
            self._kept[notice_id] = (session_id, sentence)
            while len(self._kept) > MOST_NOTICES:
                self._kept.popitem(last=False)
        return notice_id

    def take(self, session_id: str, notice_id: str) -> str | None:
        """Return and forget the sentence of an id; None for an unknown id and for another session."""
        with self._lock:
            if self._kept.get(notice_id, ("", ""))[0] != session_id:
                return None
            return self._kept.pop(notice_id)[1]


# The tokens of forms against cross-site request forgery: a form's token fits the session cookie of its
# browser.

FIELD: Final = "csrf"


class FormTokens:
    """Makes and checks tokens with a key of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()

    def fits(self, session_id: str, token: str) -> bool:
        return bool(session_id) and hmac.compare_digest(self.token(session_id).encode(), token.encode())
