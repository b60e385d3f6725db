"""One run: an application sends its values while one script plays, and the run is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from seqgate.gateway.certify.application import Application, words_of
from seqgate.gateway.certify.judgement import Ending, Findings, Verdict, find, judge
from seqgate.gateway.certify.scene import Scene, Struck
from seqgate.gateway.certify.scripts import Script
from seqgate.gateway.testing import Broker

BURSTS: Final = 20
"""Parts in which the application gets its values, so that a producer that sends what it reads makes several
batches of them.
"""
LULL_S: Final = 0.25
"""Longest wait for a Produce request between two bursts: a client may be retrying."""
FIRST_SHARE: Final = 0.25
"""The share of the time of a run in which the first Produce request may come: a program may need seconds to
start.
"""


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
        """Return the values that the application sends in one run."""
        return [b"value-%05d" % number for number in range(self.records)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run. `requests` are its Produce requests, `requests_amid` those before the last
    values were given.

    `reads_along` says whether one came after the first values, before all others.
    """

    script: Script
    verdict: Verdict
    ending: Ending
    findings: Findings
    struck: Sequence[Struck]
    sent: int
    stored: int
    requests: int
    requests_amid: int
    reads_along: bool


def play(
    script: Script,
    broker: Broker,
    setup: Setup,
    register: Callable[[Application], None],
    *,
    reads_along: bool = True,
) -> Outcome:
    """Run the application once, and judge it. The broker begins anew; `register` gets the run, so that others
    can kill it.

    An application that is known not to read along gets its values without a wait for its first request.
    Raises NotStarted, ValueError for a command or a topic name that is none, StartFailed and OSError if the
    broker can't be started.
    """
    broker.reset()
    if script.has_topic:
        broker.create_topic(setup.topic, setup.partitions)
    application = Application(*_start_of(script, broker, setup), setup.timeout_s)
    scene = Scene(
        broker,
        setup.topic,
        setup.partitions,
        setup.seed,
        setup.request_timeout_s,
        application.has_ended,
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
    return Outcome(
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


def _start_of(script: Script, broker: Broker, setup: Setup) -> tuple[list[str], dict[str, str]]:
    """Return the words of the command, and the variables of its environment."""
    facts = {
        "bootstrap": broker.bootstrap,
        "topic": setup.topic,
        "records": str(setup.records),
        "script": script.name,
        "request_timeout_ms": str(round(setup.request_timeout_s * 1000)),
    }
    return words_of(setup.command, facts), {f"SEQGATE_{name.upper()}": value for name, value in facts.items()}


def _feed(
    application: Application, scene: Scene, script: Script, values: Sequence[bytes], first_s: float
) -> tuple[int, bool]:
    """Give all values to the application in bursts, with the act of the script between them.

    Before the next burst comes a Produce request, or a lull: the client may be retrying, or collecting a
    batch. The end of the values follows the last burst at once, so that an application that does not flush is
    found. `first_s` is the time for the first request. Return the number of Produce requests before the last
    burst, and whether one came in that time.
    """
    act = _acting(script, scene)
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


def _acting(script: Script, scene: Scene) -> Iterator[None]:
    if script.act is not None:
        yield from script.act(scene)
