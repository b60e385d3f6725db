"""An application that sends the lines of a file under a producer's name: `python -m
tests.faults.deduplication.applications WORDS`.

The application asks the gateway for the last sequence id of its name, continues after that line or from an
older one, and stops at the end of the file. It reports its progress on standard output, one line each:

    stage NAME            starting, asking, asked, sending, flushing, ended; with transactions also begun, inside
                          (the first half of the transaction is acknowledged), committing and committed
    from FIRST KNOWN COUNT    the application sends from the line FIRST on; the gateway knew the first KNOWN of COUNT lines
    sent COUNT            records handed to the library so far
    acknowledged COUNT    records acknowledged so far

It exits with 0 when every line was acknowledged, with 3 when the library gave up. Then the test starts it
again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.faults.deduplication.lines import Line, first_unknown, lines_of
from tests.faults.deduplication.task import NAME_HEADER, SEQUENCE_HEADER, WINDOW, Task
from tests.faults.kill.sessions import (
    SESSIONS,
    ConfluentSession,
    Destination,
    Outgoing,
    Session,
    SessionLostError,
    one_line,
)

TELL_EVERY = 10
GAVE_UP = 3
TRANSACTION_CALL_S = 1.0


def say(*words: object) -> None:
    print(*words, flush=True)


class TransactionalSession(ConfluentSession):
    """A session of librdkafka with a transactional id."""

    def __init__(self, destination: Destination, task: Task) -> None:
        quick = min(destination.request_timeout_ms, task.transaction_timeout_ms)
        super().__init__(
            replace(destination, request_timeout_ms=quick),
            {
                "transactional.id": task.transactional_id,
                "transaction.timeout.ms": task.transaction_timeout_ms,
                "message.timeout.ms": task.transaction_timeout_ms,
            },
        )
        self._repeat("init_transactions", TRANSACTION_CALL_S)

    def begin(self) -> None:
        self._repeat("begin_transaction")

    def commit(self) -> None:
        self._repeat("commit_transaction", TRANSACTION_CALL_S)

    def _repeat(self, call: str, *arguments: object) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                getattr(self._producer, call)(*arguments)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise SessionLostError(one_line(error)) from error
            else:
                return


class Application:
    """One start of an application."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lines = list(lines_of(Path(task.file).read_bytes()))
        self._headers = [(NAME_HEADER, task.name.encode())]
        self._sent = self._acknowledged = self._told = 0
        self._failure: object = None

    def run(self) -> int:
        """Send the lines; return the exit status."""
        say("stage asking")
        known = self._known_lines()
        first = int(known * self._task.believed)
        say("from", first, known, len(self._lines))
        try:
            self._send(self._lines[first:])
        except SessionLostError as error:
            print(f"gave up: {one_line(error)}", file=sys.stderr)
            return GAVE_UP
        say("stage ended")
        return 0

    def _known_lines(self) -> int:
        from tests.faults.deduplication.asking import persisted_sequences

        task = self._task
        persisted = persisted_sequences(task)
        say("stage asked")
        return first_unknown(self._lines, task.unit, task.partitions, persisted, by_key=task.by_key)

    def _send(self, lines: Sequence[Line]) -> None:
        task = self._task
        destination = Destination(
            task.bootstrap, task.topic, task.request_timeout_ms, task.codec, task.is_idempotent
        )
        if task.transactional_id:
            self._send_in_transactions(TransactionalSession(destination, task), lines)
            return
        session = SESSIONS[task.library](destination)
        say("stage sending")
        self._send_all(session, lines)
        say("stage flushing")
        session.finish()
        self._tell_acknowledged()

    def _send_in_transactions(self, session: TransactionalSession, lines: Sequence[Line]) -> None:
        say("stage sending")
        at_once = self._task.transaction_lines
        for first in range(0, len(lines), at_once):
            middle, end = first + at_once // 2, first + at_once
            session.begin()
            say("stage begun")
            self._send_all(session, lines[first:middle])
            session.finish()
            say("stage inside")
            self._send_all(session, lines[middle:end])
            say("stage committing")
            session.commit()
            say("stage committed")
            self._tell_acknowledged()

    def _send_all(self, session: Session, lines: Sequence[Line]) -> None:
        for line in lines:
            while self._sent - self._acknowledged >= WINDOW:
                session.wait()
                self._tell_acknowledged()
            session.send(self._record(line), self._settled)
            self._sent += 1
            if self._sent % TELL_EVERY == 0:
                say("sent", self._sent)
                self._tell_acknowledged()

    def _record(self, line: Line) -> Outgoing:
        task = self._task
        headers = [*self._headers, (SEQUENCE_HEADER, str(line.sequence(task.unit)).encode())]
        if task.by_key:
            return Outgoing(line.value, None, line.key, headers)
        return Outgoing(line.value, line.partition(task.partitions), None, headers)

    def _settled(self, error: object, offset: int) -> None:
        """Take the result of a record. The library calls this from its threads, one at a time."""
        del offset
        if error is None:
            self._acknowledged += 1
        elif self._failure is None:
            self._failure = error

    def _tell_acknowledged(self) -> None:
        if self._failure is not None:
            raise SessionLostError(one_line(self._failure))
        if self._acknowledged > self._told:
            self._told = self._acknowledged
            say("acknowledged", self._told)


if __name__ == "__main__":
    say("stage starting")
    sys.exit(Application(Task.of(sys.argv[1:])).run())
