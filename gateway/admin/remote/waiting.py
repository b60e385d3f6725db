"""Says on stderr what is wrong while a command waits for its cluster, so that nobody waits in silence.

Trouble that ends within a second, such as a leader that moves, is not reported. Longer trouble is reported
once, and once more when it is over; a command that gives up quotes the last trouble in its own sentence.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

import msgspec

REPORTED_AFTER_S: Final = 1.0
"""Trouble that lasts so long is reported."""
SLOW_AFTER_S: Final = 1.5
"""A request without an answer for so long is reported."""
_LOOK_EVERY_S: Final = 0.2
_ANSWER: Final = "answer"
"""The subject of a trouble: an address gives no answer."""


class _Trouble(msgspec.Struct):
    sentence: str
    since_s: float
    is_reported: bool = False


def _print(sentence: str) -> None:
    sys.stderr.write(f"seqgate: {sentence}\n")
    sys.stderr.flush()


class Deadline:
    """The time that a command gives its cluster to answer. It runs while requests wait, over all of them, and
    begins anew with each answer. Without a limit it never ends.
    """

    def __init__(self, limit_s: float | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._now_s = now_s
        self._until_s: float | None = None

    def left_s(self, most_s: float) -> float:
        """Return how long the next request may wait, at most `most_s`; 0 when the time is over."""
        if self.limit_s is None:
            return most_s
        now_s = self._now_s()
        if self._until_s is None:
            self._until_s = now_s + self.limit_s
        return min(most_s, max(0.0, self._until_s - now_s))

    @property
    def is_over(self) -> bool:
        """Whether requests have waited for the whole time."""
        return self._until_s is not None and self._now_s() >= self._until_s

    def answered(self) -> None:
        """Note an answer, or that the command does without it."""
        self._until_s = None


class Watch:
    """The troubles of a command's connections, by what they are about. Entered as a context, the watch looks
    after them in a thread, and reports those that last; otherwise it only knows them.
    """

    def __init__(
        self, report: Callable[[str], None] = _print, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._now_s = now_s
        self._lock = threading.Lock()
        self._troubles: dict[tuple[str, str], _Trouble] = {}
        self._asked: dict[object, tuple[str, float]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="seqgate-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            self.look()

    @contextmanager
    def asking(self, address: str) -> Iterator[None]:
        """Know that a request to an address waits for its answer as long as the context lasts."""
        asked = self.asks(address)
        try:
            yield
        except BaseException:
            self.answered(asked, well=False)
            raise
        self.answered(asked)

    def asks(self, address: str) -> object:
        """Note a request that waits for its answer; `answered` takes what this returns."""
        asked = object()
        with self._lock:
            self._asked[asked] = address, self._now_s()
        return asked

    def answered(self, asked: object, *, well: bool = True) -> None:
        """Note that a request does not wait any longer; `well`: because it has its answer."""
        with self._lock:
            address, _ = self._asked.pop(asked)
        if well:
            self.ends(_ANSWER, address)

    def begins(self, about: str, address: str, sentence: str) -> None:
        """Note a trouble, or its newest reason; it lasts until `ends`."""
        with self._lock:
            known = self._troubles.pop((about, address), None)
            now_s = self._now_s()
            self._troubles[about, address] = (
                _Trouble(sentence, now_s)
                if known is None
                else _Trouble(sentence, known.since_s, known.is_reported)
            )

    def ends(self, about: str, address: str) -> None:
        """Note that a trouble is over, if there was one."""
        with self._lock:
            known = self._troubles.pop((about, address), None)
            is_over = known is not None and all(
                each.sentence != known.sentence for each in self._troubles.values()
            )
        if known is not None and known.is_reported and is_over:
            self._report(f"{address} works again")

    def say(self, sentence: str) -> None:
        """Report a sentence now."""
        self._report(sentence)

    def look(self) -> None:
        """Report the troubles that last."""
        with self._lock:
            now_s = self._now_s()
            for address, since_s in self._asked.values():
                if now_s - since_s >= SLOW_AFTER_S:
                    self._troubles.setdefault(
                        (_ANSWER, address), _Trouble(f"{address} does not answer", since_s)
                    )
            known = {each.sentence for each in self._troubles.values() if each.is_reported}
            lasting = [
                each
                for each in self._troubles.values()
                if not each.is_reported and now_s - each.since_s >= REPORTED_AFTER_S
            ]
            for each in lasting:
                each.is_reported = True
        for sentence in dict.fromkeys(each.sentence for each in lasting):
            if sentence not in known:
                self._report(f"{sentence}; still trying")

    @property
    def trouble(self) -> str | None:
        """The newest trouble that is not over."""
        with self._lock:
            return next((each.sentence for each in reversed(self._troubles.values())), None)

    @property
    def lasts_s(self) -> float:
        """How long the oldest trouble has lasted; 0 without any."""
        with self._lock:
            return max((self._now_s() - each.since_s for each in self._troubles.values()), default=0.0)
