"""One run: an application sends its values while one script plays, and the run is judged by `command.judge`.

The application gets values on its standard input, and writes acknowledged values to its standard output.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Self

from seqgate.gateway.certify.command import Findings, Judgement, ScriptEnd, find, judge
from seqgate.gateway.certify.scripts import Scene, Script, Struck
from seqgate.gateway.testing import Broker

BURSTS: Final = 20
"""Parts of the values, so that a producer that sends what it reads makes several batches of them."""
LULL_S: Final = 0.25
"""Longest wait for a Produce request between two bursts: a client may be retrying."""
FIRST_SHARE: Final = 0.25
"""Share of a run's time for the first Produce request: a program may need seconds to start."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of all runs. Times are in seconds; `timeout_s` is that of one run."""

    command: str
    topic: str = "certify"
    records: int = 200
    partitions: int = 1
    timeout_s: float = 60.0
    request_timeout_s: float = 2.0
    seed: int = 1

    def values(self) -> list[bytes]:
        return [b"value-%05d" % number for number in range(self.records)]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of one run. `requests` are its Produce requests, `requests_amid` those before the last
    values; `reads_along`: one came after the first values, before all others.
    """

    script: Script
    verdict: Judgement
    ending: ScriptEnd
    findings: Findings
    struck: Sequence[Struck]
    sent: int
    stored: int
    requests: int
    requests_amid: int
    reads_along: bool

    @property
    def never_struck(self) -> bool:
        return self.verdict is Judgement.NOT_STRUCK


def play(
    script: Script,
    broker: Broker,
    setup: Setup,
    register: Callable[[Application], None],
    *,
    reads_along: bool = True,
) -> RunOutcome:
    """Run the application once against a fresh broker, and judge it; `register` gets the run, to kill it.

    An application that is known not to read along gets its values without a wait for its first request.
    Raises NotStarted, ValueError for a wrong command or topic name, StartFailed and OSError.
    """
    broker.reset()
    if script.has_topic:
        broker.create_topic(setup.topic, setup.partitions)
    facts = {
        "bootstrap": broker.bootstrap,
        "topic": setup.topic,
        "records": str(setup.records),
        "script": script.name,
        "request_timeout_ms": str(round(setup.request_timeout_s * 1000)),
    }
    environment = {f"SEQGATE_{name.upper()}": value for name, value in facts.items()}
    application = Application(words_of(setup.command, facts), environment, setup.timeout_s)
    scene = Scene(
        broker, setup.topic, setup.partitions, setup.seed, setup.request_timeout_s, application.has_ended
    )
    script.begin(scene)
    values = setup.values()
    with application.start(values):
        register(application)
        first_s = FIRST_SHARE * setup.timeout_s if reads_along and script.has_topic else LULL_S
        fed = _feed(application, scene, script, values, first_s)
        ending = application.finish()
    stored = broker.records(setup.topic)
    struck = scene.struck()
    findings = find(values, stored, ending)
    return RunOutcome(
        script,
        judge(findings, ending, struck, may_give_up=script.may_give_up),
        ending,
        findings,
        struck,
        len(values),
        len(stored),
        scene.requests,
        *fed,
    )


def _feed(
    application: Application, scene: Scene, script: Script, values: Sequence[bytes], first_s: float
) -> tuple[int, bool]:
    """Give all values to the application in bursts, with the act of the script between them.

    Before the next burst comes a Produce request, or a lull: the client may be retrying, or collecting a
    batch. The end of the values follows the last burst at once, so that an application that does not flush is
    found. `first_s` is the time for the first request. Return the number of Produce requests before the last
    burst, and whether one came in that time.
    """
    act = iter(()) if script.act is None else script.act(scene)
    requests, reads_along = 0, False
    for number in range(BURSTS):
        if number >= script.act_at:
            next(act, None)
        requests = scene.requests
        burst = values[number * len(values) // BURSTS : (number + 1) * len(values) // BURSTS]
        if not application.write(burst) or number == BURSTS - 1:
            break
        if number == 0:
            reads_along = scene.wait_for_requests(1, first_s)
        elif requests:  # an application that has sent nothing by now reads everything first
            scene.wait_for_requests(requests + 1, LULL_S)
    for _ in act:  # repair what is broken
        pass
    return requests, reads_along


# Runs an application: gives it values on its standard input, and takes acknowledged values from its standard
# output.

_TAIL_BYTES: Final = 2_000
_OUTPUT_TIMEOUT_S: Final = 5.0
"""Time for what is left of the standard output after the end."""


def words_of(command: str, places: Mapping[str, str]) -> list[str]:
    """Split a command into words, as a shell does, and replace placeholders such as {topic} in them. Raises
    ValueError for a command that is empty or whose quotes are not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the command {command!r} can't be split into words: {error}") from None
    if not words:
        raise ValueError("the command is empty: name the program that starts the application")
    for name, value in places.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return words


class NotStarted(Exception):
    """The application can't be started; the message says why."""


class Application:
    """One run of the application, in a process group of its own, which ends with the `with` block."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> None:
        """Prepare a run that is killed after `timeout_s`."""
        self._words = words
        self._environment = environment
        self._timeout_s = timeout_s
        self.has_ended = threading.Event()
        """Set when the process has ended or was killed."""
        self._acknowledged: set[bytes] = set()
        self._hung = False
        self._is_over = False
        self._process: subprocess.Popen[bytes]
        self._errors: IO[bytes]
        self._threads: list[threading.Thread] = []
        self._begun_s = 0.0
        self._ended_s = 0.0

    def start(self, values: Collection[bytes]) -> Self:
        """Start the process; its lines that are `values` count as acknowledged. Raises NotStarted."""
        self._begun_s = time.monotonic()
        # the file is closed in `close`
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._words,
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise NotStarted(f"the command can't be started: {error}") from None
        works = (self._await_end, lambda: self._read(frozenset(values)))
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, values: Sequence[bytes]) -> bool:
        """Give values to the application, one a line; return False if it reads no more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join(value + b"\n" for value in values))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True

    def finish(self) -> ScriptEnd:
        """Tell the application that there are no more values, and return how it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.has_ended.wait()
        self._end()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return ScriptEnd(
            None if self._hung else self._process.returncode,
            self._ended_s - self._begun_s,
            frozenset(self._acknowledged),
            self._errors.read().decode(errors="replace").strip(),
        )

    def kill(self) -> None:
        """Kill the application and all processes that it has started; do nothing once the run is over."""
        if self._is_over:  # another process may have its number
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the application, and close its files."""
        self._end()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                assert file is not None
                file.close()

    def _end(self) -> None:
        self.kill()
        self.has_ended.wait()
        self._is_over = True
        for thread in self._threads:
            # A process that left the group may hold the standard output open.
            thread.join(_OUTPUT_TIMEOUT_S)

    def _await_end(self) -> None:
        try:
            self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._hung = True
            self.kill()
            self._process.wait()
        self._ended_s = time.monotonic()
        self.has_ended.set()

    def _read(self, values: frozenset[bytes]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            value = line.rstrip(b"\r\n")
            if value in values:
                self._acknowledged.add(value)
