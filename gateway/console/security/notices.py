"""Sentences that the next page shows once, such as what a change did."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from gateway.console.security.sessions import new_id

MOST_NOTICES: Final = 200
"""Notices that wait for their page; the oldest is dropped when another comes."""


class Notices:
    """Keeps sentences under random ids, each for one session. Thread-safe."""

    def __init__(self) -> None:
        """Begin without notices."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def keep(self, session_id: str, sentence: str) -> str:
        """Keep a sentence and return its id."""
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
