"""A Kafka Streams application with exactly_once_v2 that counts words, and the lines for it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.compat.groups.word_count import Instance, word_count

WORDS = [f"word-{number}" for number in range(23)]
LINES_AT_ONCE = 10
PAUSE_S = 0.5


class StreamsLoad:
    """Two instances that count, one of which is started again when it has ended; `counts` has how often."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._stack = ExitStack()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._application = self._stack.enter_context(
            word_count(bootstrap, directory, changelog="compact", guarantee="exactly_once_v2")
        )
        self._instances: list[Instance] = []
        self._failure = ""
        self.counts: Counter[str] = Counter()

    @property
    def written(self) -> int:
        """The words that were sent."""
        return self._application.expected.total()

    def __enter__(self) -> Self:
        self._instances = [self._application.start(name) for name in ("first", "second")]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(None if kind is None else 0)
        self._stack.close()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.wait(PAUSE_S):
                self._application.produce(
                    f"{WORDS[at % len(WORDS)]} {WORDS[7 * at % len(WORDS)]}"
                    for at in range(number, number + LINES_AT_ONCE)
                )
                number += LINES_AT_ONCE
                self._start_those_that_ended()
        except Exception as error:
            self._failure = f"the lines of the application ended early: {error!r}"

    def _start_those_that_ended(self) -> None:
        for position, instance in enumerate(self._instances):
            if not instance.runs:
                self.counts["Streams instances started again"] += 1
                self._instances[position] = self._application.start(instance.name)

    def finish(self) -> list[str]:
        """Wait until all is counted; return the breaches."""
        self._stopping.set()
        self._thread.join()
        if self._failure:
            return [self._failure]
        application = self._application
        self._start_those_that_ended()
        application.await_every_word()
        application.read_output()
        self.counts["words counted"] = application.updates.total()
        if application.counts != application.expected:
            return ["the counts of the Streams application are not those of its input"]
        if application.updates != application.expected:
            return ["the Streams application has counted some words more than once"]
        return []
