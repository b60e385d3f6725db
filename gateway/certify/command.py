"""`seqgate certify`: runs an application's producer through fault scripts, judges each run, and reports."""

from __future__ import annotations

import enum
import logging
import os
import re
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import AsJson, command, flag, option, stop
from seqgate.gateway.admin.printing import print_json, print_lines, print_table
from seqgate.gateway.admin.tables import Column, counted
from seqgate.gateway.admin.tables import shown as printing_shown

if TYPE_CHECKING:
    from seqgate.gateway.certify.application import Application
    from seqgate.gateway.certify.scripts import Scene, Script, Struck
    from seqgate.gateway.testing import Broker, StoredRecord
    from seqgate.gateway.testing.differences import Reordered, Value


@command
def certify(
    command: str | None = option(
        "--command",
        "COMMAND",
        "The command that starts the application. Words may hold placeholders (`seqgate help certify`).",
    ),
    lists: bool = flag("--list", "Print the scripts, and run nothing."),
    scripts: str | None = option("--scripts", "NAME,...", "Run these scripts only. [default: all thirty]"),
    records: int = option("--records", "N", "Records of each run.", show_default=True, min=20, default=200),
    topic: str = option(
        "--topic", "TOPIC", "The topic that the application writes to.", show_default=True, default="certify"
    ),
    partitions: int = option(
        "--partitions", "N", "Partitions of the topic.", show_default=True, min=1, default=1
    ),
    timeout: float = option(
        "--timeout",
        "SECONDS",
        "Time after which a run counts as hung.",
        show_default=True,
        min=1,
        default=60.0,
    ),
    request_timeout: float = option(
        "--request-timeout",
        "SECONDS",
        "The request timeout of the application's client: late answers come after it.",
        show_default=True,
        min=0.1,
        default=2.0,
    ),
    seed: int = option("--seed", "N", "The seed of the random scripts.", show_default=True, default=1),
    jobs: int | None = option(
        "--jobs", "N", "Runs at a time. [default: one for each processor, at most 4]", min=1
    ),
    allow_giving_up: bool = flag(
        "--allow-giving-up", "A reported failure is good enough, whatever the script is."
    ),
    reports: list[Path] | None = option(
        "--report",
        "FILE",
        "Write the report into this file: JUnit's XML if its name ends in .xml, otherwise JSON; may "
        "be repeated.",
        dir_okay=False,
    ),
    as_json: AsJson = False,
) -> None:
    """Run an application's producer through thirty fault scripts; report what it loses, doubles or reorders.

    The application reads values from its standard input, sends each to the topic as it reads it, and ends
    with exit code 0 when all are acknowledged (`seqgate help certify`). It finds the address and the topic in
    SEQGATE_BOOTSTRAP and SEQGATE_TOPIC. Each run has a broker of its own.

    The exit code is 0 if the application passed every script.

    \b
    For example:
      seqgate certify --command "python orders.py"
      seqgate certify --command "java -jar orders.jar" --report certify.xml
      seqgate certify --command ./orders --scripts broker-killed,power-cut
    """  # noqa: D301 - \b keeps the lines of the list apart
    if lists:
        print_scripts(as_json=as_json)
        return
    if command is None:
        raise stop("--command is missing: name the command that starts the application", code=2)
    for path in reports or ():
        if not path.parent.is_dir():
            raise stop(f"--report: there is no directory {path.parent}", code=2)
    chosen = _chosen(command, scripts)
    # The brokers run in this process, and log what the scripts do to them.
    logging.getLogger().addHandler(logging.NullHandler())
    setup = Setup(command, topic, records, partitions, timeout, request_timeout, seed)
    try:
        certificate = run_scripts(
            setup,
            chosen,
            jobs=jobs or min(4, os.cpu_count() or 1),
            report=(lambda _: None) if as_json else print_outcome,
        )
    except NotReady as error:
        raise stop(str(error)) from None
    except WrongTopic as error:
        raise stop(str(error), code=2) from None
    try:
        for path in reports or ():
            write(path, certificate, may_give_up=allow_giving_up)
    except OSError as error:
        raise stop(f"--report: {error}") from None
    if as_json:
        print_json(report_of(certificate, may_give_up=allow_giving_up))
    else:
        told = [f"{count} {verdict.value}" for verdict, count in certificate.counts.items() if count]
        print_lines(f"{counted(len(certificate.outcomes), 'script')}: {', '.join(told)}.")
    if not certificate.is_good(may_give_up=allow_giving_up):
        raise SystemExit(1)


def _chosen(command: str, scripts: str | None) -> Sequence[Script]:
    """Return the scripts that are named, or all. End the command for a wrong name, and for words that are no
    command, before a broker starts.
    """
    from seqgate.gateway.certify.scripts import SCRIPTS, named  # noqa: PLC0415 - slow to import

    try:
        words_of(command, {})
    except ValueError as error:
        raise stop(f"--command: {error}", code=2) from None
    try:
        return SCRIPTS if scripts is None else named([name.strip() for name in scripts.split(",")])
    except ValueError as error:
        raise stop(f"--scripts: {error}", code=2) from None


# Runs the application through scripts, several at a time, each against its own broker.

SETTINGS: Final = {"log.flush.interval.messages": "1", "auto.create.topics.enable": "false"}
"""A power cut loses nothing acknowledged, and a topic exists when a script says so."""


class Setup(msgspec.Struct, frozen=True):
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


class RunOutcome(msgspec.Struct, frozen=True):
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


class NotReady(Exception):
    """There is nothing to certify; the message says why, such as a failure without a fault."""


class WrongTopic(Exception):
    """The broker refuses to create the topic."""


class Certificate(msgspec.Struct, frozen=True):
    """The outcomes of all runs. `calm` is the run without a fault."""

    setup: Setup
    calm: RunOutcome
    outcomes: Sequence[RunOutcome]

    @property
    def counts(self) -> dict[Judgement, int]:
        found = Counter(outcome.verdict for outcome in self.outcomes)
        return {judgement: found[judgement] for judgement in Judgement}

    def is_good(self, *, may_give_up: bool = False) -> bool:
        """Return whether every script passed; with `may_give_up` also a reported failure is good."""
        return all(is_good(outcome, may_give_up=may_give_up) for outcome in self.outcomes)


def is_good(outcome: RunOutcome, *, may_give_up: bool) -> bool:
    """Return whether the script passed; with `may_give_up` also a reported failure is good."""
    return outcome.verdict is Judgement.PASSED or (may_give_up and outcome.verdict is Judgement.GAVE_UP)


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


def run_scripts(
    setup: Setup, scripts: Sequence[Script], *, jobs: int, report: Callable[[RunOutcome], None]
) -> Certificate:
    """Run the application without a fault, then through scripts, `jobs` at a time; `report` gets outcomes.
    Raises NotReady, WrongTopic, and ValueError for a command that is none.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import

    from seqgate.gateway.backends.backend import StartFailed  # noqa: PLC0415
    from seqgate.gateway.certify.application import NotStarted  # noqa: PLC0415
    from seqgate.gateway.certify.scripts import CALM  # noqa: PLC0415

    stage = _Stage(setup)
    try:
        calm = stage.play(CALM)
        _expect_ready(calm)
        report(calm)
        lock = threading.Lock()

        def run(script: Script) -> RunOutcome:
            outcome = stage.play(script, reads_along=calm.reads_along)
            with lock:
                if not stage.is_over:
                    report(outcome)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            try:
                outcomes = list(pool.map(run, scripts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                stage.kill_all()
                raise
        return Certificate(setup, calm, outcomes)
    except NotStarted as error:
        raise NotReady(str(error)) from None
    except (OSError, StartFailed) as error:
        raise NotReady(f"a broker can't be started: {error}") from None
    finally:
        stage.close()


def _expect_ready(calm: RunOutcome) -> None:
    """Raise NotReady unless the application stored each value once without a fault."""
    complaints = list(calm.findings.complaints())
    if not calm.ending.claims_all:
        complaints.insert(0, f"it {calm.ending}")
    if complaints:
        tail = f"\n{calm.ending.errors}" if calm.ending.errors else ""
        raise NotReady(
            f"the application fails without a fault: {'; '.join(complaints)}; "
            f"{calm.stored} of {calm.sent} records are stored{tail}"
        )


class _Stage:
    """The brokers, of which each run takes one that is free, and the applications that run."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._free: list[Broker] = []
        self._brokers: list[Broker] = []
        self._running: list[Application] = []
        self.is_over = False
        """Whether the applications were killed, so that what they show means nothing."""

    def play(self, script: Script, *, reads_along: bool = True) -> RunOutcome:
        """Run the application through a script, against a free broker, and judge the run.

        An application that is known not to read along gets its values without a wait for its first request.
        Raises NotStarted, WrongTopic, StartFailed and OSError.
        """
        from seqgate.gateway.certify.application import Application  # noqa: PLC0415 - slow to import
        from seqgate.gateway.certify.scripts import Scene  # noqa: PLC0415

        broker, setup = self._taken(), self._setup
        broker.reset()
        if script.has_topic:
            try:
                broker.create_topic(setup.topic, setup.partitions)
            except ValueError as error:
                raise WrongTopic(str(error)) from None
        facts = {
            "bootstrap": broker.bootstrap,
            "topic": setup.topic,
            "records": str(setup.records),
            "script": script.name,
            "request_timeout_ms": str(round(setup.request_timeout_s * 1000)),
        }
        environment = {f"SEQGATE_{name.upper()}": value for name, value in facts.items()}
        application = Application(words_of(setup.command, facts), environment, setup.timeout_s)
        ended = application.has_ended
        scene = Scene(broker, setup.topic, setup.partitions, setup.seed, setup.request_timeout_s, ended)
        script.begin(scene)
        values = setup.values()
        with application.start(values):
            self._register(application)
            first_s = FIRST_SHARE * setup.timeout_s if reads_along and script.has_topic else LULL_S
            fed = _feed(application, scene, script, values, first_s)
            ending = application.finish()
        stored = broker.records(setup.topic)
        struck = scene.struck()
        requests = scene.requests
        with self._lock:
            self._free.append(broker)
        findings = find(values, stored, ending)
        verdict = judge(findings, ending, struck, may_give_up=script.may_give_up)
        return RunOutcome(script, verdict, ending, findings, struck, len(values), len(stored), requests, *fed)

    def kill_all(self) -> None:
        """Kill all applications, and those that start from now on."""
        with self._lock:
            self.is_over = True
            for application in self._running:
                application.kill()

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def _taken(self) -> Broker:
        with self._lock:
            if self._free:
                return self._free.pop()
            from seqgate.gateway.testing import Broker  # noqa: PLC0415 - slow to import

            broker = Broker(settings=SETTINGS)
            self._brokers.append(broker)
            return broker

    def _register(self, application: Application) -> None:
        with self._lock:
            self._running.append(application)
            if self.is_over:
                application.kill()


# Feeds one run: the application gets its values while a script plays.

BURSTS: Final = 20
"""Parts of the values, so that a producer that sends what it reads makes several batches of them."""
LULL_S: Final = 0.25
"""Longest wait for a Produce request between two bursts: a client may be retrying."""
FIRST_SHARE: Final = 0.25
"""Share of a run's time for the first Produce request: a program may need seconds to start."""


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


# Judges one run of an application: what it claimed, what the topic holds, and how it ended. Pure.

_NAMED: Final = 3
"""Records of one kind that a complaint names; it counts the others."""


class Judgement(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """It lost, doubled or reordered a record, or stored one that nobody gave to it."""
    HUNG = "hung"
    NOT_STRUCK = "not struck"
    """A fault of the script never struck, so the run shows nothing."""
    GAVE_UP = "gave up"
    """It reported a failure after which a correct producer goes on."""


class ScriptEnd(msgspec.Struct, frozen=True):
    """How it ended. `exit_code` None: hung and killed; `acknowledged` are the values that it printed."""

    exit_code: int | None
    seconds: float
    acknowledged: frozenset[bytes] = frozenset()
    errors: str = ""

    @property
    def claims_all(self) -> bool:
        """Whether the application claims that all values are acknowledged."""
        return self.exit_code == 0

    def __str__(self) -> str:
        if self.exit_code is None:
            return "hung"
        return "finished" if self.claims_all else f"gave up with exit code {self.exit_code}"


class Doubled(NamedTuple):
    value: Value
    records: Sequence[StoredRecord]


class Findings(msgspec.Struct, frozen=True):
    """The faults of the stored records. `lost` are acknowledged values that are not stored."""

    lost: Sequence[bytes]
    doubled: Sequence[Doubled]
    reordered: Sequence[Reordered]
    unexpected: Sequence[StoredRecord]

    def __bool__(self) -> bool:
        return any((self.lost, self.doubled, self.reordered, self.unexpected))

    def complaints(self) -> Iterator[str]:
        from seqgate.gateway.testing.differences import shown  # noqa: PLC0415 - slow to import

        if self.lost:
            yield f"lost {_some([shown(value) for value in self.lost])}"
        if self.doubled:
            yield (
                "doubled "
                f"{_some([f'{shown(each.value)} ({_places(each.records)})' for each in self.doubled])}"
            )
        if self.reordered:
            late = [
                f"{shown(each.record.value)} behind {shown(each.before.value)} "
                f"({_places([each.record, each.before])})"
                for each in self.reordered
            ]
            yield f"reordered {_some(late)}"
        if self.unexpected:
            found = [f"{shown(each.value)} ({_places([each])})" for each in self.unexpected]
            yield f"unexpected {_some(found)}"


def find(sent: Sequence[bytes], stored: Sequence[StoredRecord], ending: ScriptEnd) -> Findings:
    """Return what is wrong with stored records, of the values `sent`, each once, in their order. A value that
    is not stored is lost only if the application claimed that it is acknowledged.
    """
    from seqgate.gateway.testing.differences import differences  # noqa: PLC0415 - slow to import

    wrong = differences(stored, sent)
    doubled = set(wrong.doubled)
    places: dict[Value, list[StoredRecord]] = {}
    for record in stored:
        places.setdefault(record.value, []).append(record)
    unexpected = set(wrong.unexpected)
    missing = [value for value in wrong.lost if value is not None]
    return Findings(
        lost=[value for value in missing if ending.claims_all or value in ending.acknowledged],
        doubled=[Doubled(value, places[value]) for value in sent if value in doubled],
        reordered=wrong.reordered,
        unexpected=[record for record in stored if record.value in unexpected],
    )


def judge(
    findings: Findings, ending: ScriptEnd, struck: Collection[Struck], *, may_give_up: bool = False
) -> Judgement:
    """Return what a run shows. The worse comes first: a lost record counts even if no fault struck."""
    if findings:
        return Judgement.FAILED
    if ending.exit_code is None:
        return Judgement.HUNG
    if not struck or any(not each.times for each in struck):
        return Judgement.NOT_STRUCK
    if not ending.claims_all and not may_give_up:
        return Judgement.GAVE_UP
    return Judgement.PASSED


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{len(texts)}: {', '.join(texts[:_NAMED])}{more}"


def _places(records: Sequence[StoredRecord]) -> str:
    offsets: dict[str, list[str]] = {}
    for each in records:
        offsets.setdefault(f"{each.topic}-{each.partition}", []).append(str(each.offset))
    return ", ".join(f"{partition}: {', '.join(found)}" for partition, found in offsets.items())


# The report of a certification: as JSON, and as JUnit's XML for the test views of CI servers.

_NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report_of(certificate: Certificate, *, may_give_up: bool) -> dict[str, Any]:
    """Return the report as values for JSON. Records have their partition and offset."""
    setup = certificate.setup
    return {
        "certified": certificate.is_good(may_give_up=may_give_up),
        "command": setup.command,
        "records": setup.records,
        "partitions": setup.partitions,
        "seed": setup.seed,
        "request_timeout_ms": round(setup.request_timeout_s * 1000),
        "verdicts": {verdict.value: count for verdict, count in certificate.counts.items()},
        "scripts": [_row(outcome) for outcome in certificate.outcomes],
    }


def _row(outcome: RunOutcome) -> dict[str, Any]:
    ending = outcome.ending
    return {
        **_described(outcome.script),
        "verdict": outcome.verdict.value,
        "faults": [{"what": each.what, "struck": each.times} for each in outcome.struck],
        "ending": str(ending),
        "exit_code": ending.exit_code,
        "seconds": round(ending.seconds, 3),
        "sent": outcome.sent,
        "stored": outcome.stored,
        "acknowledged": outcome.sent if ending.claims_all else len(ending.acknowledged),
        "produce_requests": outcome.requests,
        **_findings(outcome.findings),
        "stderr": ending.errors,
    }


def _findings(findings: Findings) -> dict[str, Any]:
    from seqgate.gateway.testing.control.faults_command import shown  # noqa: PLC0415 - slow to import

    return {
        "lost": [shown(value) for value in findings.lost],
        "doubled": [
            {"value": shown(each.value), "places": [_place(record) for record in each.records]}
            for each in findings.doubled
        ],
        "reordered": [
            {
                "value": shown(each.record.value),
                **_place(each.record),
                "behind": {"value": shown(each.before.value), **_place(each.before)},
            }
            for each in findings.reordered
        ],
        "unexpected": [{"value": shown(each.value), **_place(each)} for each in findings.unexpected],
    }


def _place(record: StoredRecord) -> dict[str, int]:
    return {"partition": record.partition, "offset": record.offset}


def as_junit(certificate: Certificate, *, may_give_up: bool) -> str:
    """Return the report as JUnit's XML: a test case for each script, skipped where a fault never struck."""
    cases = [_case(outcome, may_give_up) for outcome in certificate.outcomes]
    failures, skipped = (sum(f"<{word}" in case for case in cases) for word in ("failure", "skipped"))
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    seconds = sum(outcome.ending.seconds for outcome in certificate.outcomes)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>',
            f'<testsuite name="seqgate certify" {counts} time="{seconds:.3f}">',
            *cases,
            "</testsuite>\n",
        ]
    )


def _case(outcome: RunOutcome, may_give_up: bool) -> str:
    from xml.sax.saxutils import escape, quoteattr  # noqa: PLC0415 - it brings a client of HTTP

    name, seconds = outcome.script.name, outcome.ending.seconds
    head = f'  <testcase classname="seqgate.certify" name="{name}" time="{seconds:.3f}"'
    message = quoteattr(_NOT_IN_XML.sub("?", "; ".join(sentences(outcome)) or outcome.verdict.value))
    if outcome.never_struck:
        return f"{head}><skipped message={message}/></testcase>"
    if is_good(outcome, may_give_up=may_give_up):
        return f"{head}/>"
    errors = escape(_NOT_IN_XML.sub("?", outcome.ending.errors))
    return f"{head}><failure message={message}>{errors}</failure></testcase>"


def sentences(outcome: RunOutcome) -> Sequence[str]:
    """Return what is to say about an outcome that did not pass, or that passed without storing everything."""
    found = list(outcome.findings.complaints())
    if outcome.ending.exit_code is None:
        found.append(f"no end after {outcome.ending.seconds:.0f} s; the application was killed")
    elif not outcome.ending.claims_all:
        found.append(
            f"the application {outcome.ending}; {outcome.stored} of {outcome.sent} records are stored"
        )
    if outcome.never_struck:
        idle = ", ".join(each.what for each in outcome.struck if not each.times) or "the script"
        found.append(f"never struck: {idle}")
    return found


def write(path: Path, certificate: Certificate, *, may_give_up: bool) -> None:
    """Write the report into a file: JUnit's XML if its name ends so, otherwise JSON. Raises OSError."""
    if path.suffix == ".xml":
        path.write_text(as_junit(certificate, may_give_up=may_give_up), encoding="utf-8")
    else:
        content = msgspec.json.encode(report_of(certificate, may_give_up=may_give_up))
        path.write_bytes(msgspec.json.format(content, indent=2) + b"\n")


# Prints a certification for people: a line for each script when it ends, and a summary.


def _described(script: Script) -> dict[str, str]:
    return {"name": script.name, "happens": script.happens, "correct": script.correct}


def print_scripts(*, as_json: bool) -> None:
    from seqgate.gateway.certify.scripts import SCRIPTS  # noqa: PLC0415 - slow to import

    if as_json:
        print_json({"scripts": [_described(script) for script in SCRIPTS]})
        return
    print_table(
        [Column("script"), Column("what happens"), Column("a correct producer")],
        [[script.name, script.happens, script.correct] for script in SCRIPTS],
    )


def print_outcome(outcome: RunOutcome) -> None:
    """Print what one run showed."""
    from seqgate.gateway.certify.scripts import CALM, SCRIPTS  # noqa: PLC0415 - slow to import

    if outcome.script is CALM:
        print_lines(
            f"without a fault: {counted(outcome.sent, 'record')} in "
            f"{counted(outcome.requests, 'Produce request')}, {outcome.ending.seconds:.1f} s"
        )
        if outcome.requests_amid < BURSTS // 4:
            print_lines(
                "Most scripts strike a later batch, and this application sends nearly everything at once: "
                "let it send each value as it reads it."
            )
    else:
        struck = ", ".join(f"{each.what} ×{each.times}" for each in outcome.struck if each.times)
        verdict_width = max(map(len, Judgement))
        name_width = max(len(script.name) for script in SCRIPTS)
        print_lines(
            f"{outcome.verdict.value:{verdict_width}}  {outcome.script.name:{name_width}}  "
            f"{outcome.ending.seconds:5.1f} s  {struck}".rstrip(),
            *(f"{'':{verdict_width}}  {printing_shown(sentence)}" for sentence in sentences(outcome)),
        )
    sys.stdout.flush()
