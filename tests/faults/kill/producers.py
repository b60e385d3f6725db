"""One producer under load in a process of its own: `python -m tests.faults.kill.producers LIBRARY BOOTSTRAP
TOPIC N TIMEOUT_MS RATE`.

It sends RATE records per second (0: without a pause), within its window, until its standard input ends. Then
it waits for all answers. It reports events on standard output, one line each:

    A incarnation partition number offset     acknowledged
    F incarnation partition number error      given up by the library: at most once in the log
    G incarnation error                       the library gave up the session; the next incarnation follows
    S incarnation partition count             at the end: records sent
    E                                         the end
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from functools import partial

from tests.faults.kill.checker import RecordName
from tests.faults.kill.sessions import SESSIONS, Destination, Outgoing, Session, SessionLostError, one_line

WINDOW = 200
TELL_EVERY = 50


class Reporter:
    """Takes results from any thread; the sending thread prints them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._open = 0
        self._counting = threading.Lock()

    @property
    def outstanding(self) -> int:
        return self._open

    def sent(self) -> None:
        with self._counting:
            self._open += 1

    def settled(self, name: RecordName, error: object, offset: int) -> None:
        if error is None:
            self._lines.append(f"A {name.incarnation} {name.partition} {name.number} {offset}")
        else:
            self._lines.append(f"F {name.incarnation} {name.partition} {name.number} {one_line(error)}")
        with self._counting:
            self._open = max(0, self._open - 1)

    def forget_outstanding(self) -> None:
        with self._counting:
            self._open = 0

    def tell(self, *lines: str) -> None:
        while self._lines:
            print(self._lines.popleft())
        for line in lines:
            print(line)
        sys.stdout.flush()


class Load:
    """Sends to the partitions in turn until told to stop; begins a new session whenever the library gives one
    up.
    """

    def __init__(
        self, library: str, bootstrap: str, topic: str, partitions: int, request_timeout_ms: int, rate: int
    ) -> None:
        self._library = library
        self._partitions = partitions
        self._reporter = Reporter()
        destination = Destination(bootstrap, topic, request_timeout_ms)
        self._open_session = lambda: SESSIONS[library](destination)
        self._rate = rate
        self._sent: Counter[tuple[int, int]] = Counter()
        self._stopping = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._await_end_of_input, daemon=True).start()
        incarnation = 0
        while not self._run_session(incarnation):
            incarnation += 1
        self._reporter.tell(
            *(
                f"S {incarnation} {partition} {count}"
                for (incarnation, partition), count in self._sent.items()
            ),
            "E",
        )

    def _await_end_of_input(self) -> None:
        sys.stdin.read()
        self._stopping.set()

    def _run_session(self, incarnation: int) -> bool:
        """Run one session; return whether it ended without a failure."""
        session = self._open_session()
        try:
            self._send_all(session, incarnation)
            session.finish()
        except SessionLostError as error:
            self._reporter.tell(f"G {incarnation} {error}")
            session.abandon()
            self._reporter.forget_outstanding()
            return False
        return True

    def _send_all(self, session: Session, incarnation: int) -> None:
        turn, begun_s = 0, time.monotonic()
        while not self._stopping.is_set():
            is_early = self._rate and turn >= self._rate * (time.monotonic() - begun_s)
            if is_early or self._reporter.outstanding >= WINDOW:
                self._reporter.tell()
                session.wait()
                continue
            partition = turn % self._partitions
            name = RecordName(self._library, incarnation, partition, self._sent[incarnation, partition])
            self._sent[incarnation, partition] += 1
            self._reporter.sent()
            session.send(Outgoing(name.encode(), name.partition), partial(self._reporter.settled, name))
            turn += 1
            if turn % TELL_EVERY == 0:
                self._reporter.tell()


if __name__ == "__main__":
    Load(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])).run()
