"""The keys of one JWK set: they are cached, and read again at intervals, and when a token names an unknown key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.security.sasl.key_set import KeySet, KeysUnusable, VerificationKey

logger = logging.getLogger(__name__)

UNKNOWN_KEY_INTERVAL_S: Final = 10.0
"""Time (s) after an attempt to read the keys in which tokens with unknown keys are refused without another attempt."""
WAIT_S: Final = 10.0
"""Longest time (s) that a login waits until the keys are read."""


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """Times (s) between two attempts to read keys: after a success, after the first failure, and at most after failures."""

    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class KeySource:
    """Finds the public key with which a token must be signed, by the key id in the token.

    `read` blocks, so that it runs in a thread; `origin` names the JWK set in log lines.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], KeySet],
        origin: str,
        times: RefreshTimes,
    ) -> None:
        self._loop = loop
        self._read = read
        self._origin = origin
        self._times = times
        self._keys: KeySet | None = None
        self._reading: asyncio.Future[None] | None = None
        self._last_attempt_s = -UNKNOWN_KEY_INTERVAL_S
        self._backoff_s = times.backoff_s
        self._refusal = ""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to read the keys for the first time; they are refreshed as long as the event loop runs."""
        self._refresh()

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names; None when there is none, also after reading the keys again."""
        found = self._known(key_id, algorithm)
        if found is not None:
            return found
        if self._reading is None and self._loop.time() >= self._last_attempt_s + UNKNOWN_KEY_INTERVAL_S:
            self._refresh()
        if self._reading is None:
            return None
        await asyncio.wait({self._reading}, timeout=WAIT_S)
        return self._known(key_id, algorithm)

    def why_not_found(self, key_id: str | None) -> str:
        """Return the reason why `find` found no key. The client gets it, so it does not say where the keys come from."""
        if self._keys is None:
            return "the keys could not be read yet"
        if key_id is None:
            return "it names no key (kid), and not exactly one key fits"
        return "its key (kid) is unknown"

    def _known(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        return None if self._keys is None else self._keys.find(key_id, algorithm)

    def _refresh(self) -> None:
        if self._reading is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._last_attempt_s = self._loop.time()
        self._reading = self._loop.create_future()
        try:
            threading.Thread(target=self._read_aside, name="token-keys", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._take(None, str(error))

    def _read_aside(self) -> None:
        keys, reason = None, ""
        try:
            keys = self._read()
        except KeysUnusable as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - after any error the next attempt may succeed
            reason = type(error).__name__
        with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway stops
            self._loop.call_soon_threadsafe(self._take, keys, reason)

    def _take(self, keys: KeySet | None, reason: str) -> None:
        if keys is not None:
            self._keys = keys
            self._backoff_s = self._times.backoff_s
            if self._refusal:
                logger.info("the keys of %s can be read again", self._origin)
            next_s = self._times.refresh_s
        else:
            if reason != self._refusal:
                kept = (
                    f"the {len(self._keys.keys)} keys known before stay valid"
                    if self._keys
                    else "no token is accepted"
                )
                logger.warning("can't read the keys of tokens from %s: %s; %s", self._origin, reason, kept)
            next_s = self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, max(self._times.backoff_max_s, self._times.backoff_s))
        self._refusal = reason
        self._timer = self._loop.call_later(next_s, self._refresh)
        reading, self._reading = self._reading, None
        if reading is not None and not reading.done():
            reading.set_result(None)
