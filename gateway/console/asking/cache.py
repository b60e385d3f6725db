"""Keeps answers of the cluster for a few seconds, for each login."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from gateway.admin.remote.client_security import ClientSecurity

MOST_ANSWERS: Final = 64
"""Answers that are kept; the one that was used longest ago is dropped when another comes."""

TIMES_LONGER: Final = 10
"""An answer counts for so many times the time that asking took: a quick answer is soon asked for again."""

A = TypeVar("A")


@dataclass(slots=True)
class _Answer(Generic[A]):
    """An answer, the time until which it counts, and the lock of the thread that asks."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: A | None = None
    until: float = float("-inf")


class Cache(Generic[A]):
    """Answers of one kind. Of several threads that need the same answer one asks, and the others wait. Thread-safe."""

    def __init__(self, kept_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep each answer for at most `kept_s` seconds of the clock."""
        self._kept_s = kept_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[ClientSecurity, Any], _Answer[A]] = OrderedDict()

    def get(self, security: ClientSecurity, key: Any, ask: Callable[[], A]) -> A:
        """Return a known answer, or ask."""
        with self._lock:
            answer = self._answers.setdefault((security, key), _Answer())
            self._answers.move_to_end((security, key))
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        with answer.lock:
            if answer.value is None or self._clock() >= answer.until:
                began = self._clock()
                answer.value = ask()
                came = self._clock()
                answer.until = came + min(self._kept_s, (came - began) * TIMES_LONGER)
            return answer.value

    def forget(self) -> None:
        """Drop all answers, after a change."""
        with self._lock:
            self._answers.clear()
