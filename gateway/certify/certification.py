"""Runs an application through scripts, several at a time, each against its own broker; and the report."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from seqgate.gateway.admin.printing import print_lines, print_table
from seqgate.gateway.admin.tables import Column, counted
from seqgate.gateway.admin.tables import shown as printing_shown
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.certify.run import (
    BURSTS,
    Application,
    Findings,
    Judgement,
    NotStarted,
    RunOutcome,
    Setup,
    play,
)
from seqgate.gateway.certify.scripts import CALM, SCRIPTS, Script
from seqgate.gateway.testing import Broker, StoredRecord
from seqgate.gateway.testing.control.routes import shown

SETTINGS: Final = {"log.flush.interval.messages": "1", "auto.create.topics.enable": "false"}
"""A power cut loses nothing acknowledged, and a topic exists when a script says so."""


class NotReady(Exception):
    """There is nothing to certify; the message says why, such as a failure without a fault."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The outcomes of all runs. `calm` is the run without a fault."""

    setup: Setup
    calm: RunOutcome
    outcomes: Sequence[RunOutcome]

    @property
    def counts(self) -> Counter[Judgement]:
        return Counter(outcome.verdict for outcome in self.outcomes)

    def is_good(self, *, may_give_up: bool = False) -> bool:
        """Return whether all scripts passed; with `may_give_up` also a reported failure is good."""
        good = {Judgement.PASSED, Judgement.GAVE_UP} if may_give_up else {Judgement.PASSED}
        return all(outcome.verdict in good for outcome in self.outcomes)


def certify(
    setup: Setup, scripts: Sequence[Script], *, jobs: int, report: Callable[[RunOutcome], None]
) -> Certificate:
    """Run the application without a fault, then through scripts, `jobs` at a time; `report` gets outcomes.
    Raises NotReady, ValueError for a command or a topic name that is none.
    """
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
        """Run the application through a script, against a free broker; `reads_along` as for `play`."""
        broker = self._taken()
        outcome = play(script, broker, self._setup, self._register, reads_along=reads_along)
        with self._lock:
            self._free.append(broker)
        return outcome

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
            broker = Broker(settings=SETTINGS)
            self._brokers.append(broker)
            return broker

    def _register(self, application: Application) -> None:
        with self._lock:
            self._running.append(application)
            if self.is_over:
                application.kill()


# The report of a certification: as JSON, and as JUnit's XML for the test views of CI servers.

_NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_json(certificate: Certificate, *, may_give_up: bool) -> dict[str, Any]:
    """Return the report as values for JSON. Records have their partition and offset."""
    setup = certificate.setup
    return {
        "certified": certificate.is_good(may_give_up=may_give_up),
        "command": setup.command,
        "records": setup.records,
        "partitions": setup.partitions,
        "seed": setup.seed,
        "request_timeout_ms": round(setup.request_timeout_s * 1000),
        "verdicts": {verdict.value: certificate.counts[verdict] for verdict in Judgement},
        "scripts": [_row(outcome) for outcome in certificate.outcomes],
    }


def _row(outcome: RunOutcome) -> dict[str, Any]:
    ending = outcome.ending
    return {
        "name": outcome.script.name,
        "happens": outcome.script.happens,
        "correct": outcome.script.correct,
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
    name, seconds = outcome.script.name, outcome.ending.seconds
    head = f'  <testcase classname="seqgate.certify" name="{name}" time="{seconds:.3f}"'
    message = quoteattr(_NOT_IN_XML.sub("?", "; ".join(sentences(outcome)) or outcome.verdict.value))
    if outcome.verdict is Judgement.NOT_STRUCK:
        return f"{head}><skipped message={message}/></testcase>"
    if outcome.verdict is Judgement.PASSED or (may_give_up and outcome.verdict is Judgement.GAVE_UP):
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
    if outcome.verdict is Judgement.NOT_STRUCK:
        idle = ", ".join(each.what for each in outcome.struck if not each.times) or "the script"
        found.append(f"never struck: {idle}")
    return found


def write(path: Path, certificate: Certificate, *, may_give_up: bool) -> None:
    """Write the report into a file: JUnit's XML if its name ends so, otherwise JSON. Raises OSError."""
    if is_xml(path):
        path.write_text(as_junit(certificate, may_give_up=may_give_up), encoding="utf-8")
    else:
        content = msgspec.json.encode(as_json(certificate, may_give_up=may_give_up))
        path.write_bytes(msgspec.json.format(content, indent=2) + b"\n")


def is_xml(path: Path) -> bool:
    return path.suffix == ".xml"


# Prints a certification for people: a line for each script when it ends, and a summary.

_NAME_WIDTH: Final = max(len(script.name) for script in SCRIPTS)
_VERDICT_WIDTH: Final = max(map(len, Judgement))


def print_scripts() -> None:
    print_table(
        [Column("script"), Column("what happens"), Column("a correct producer")],
        [[script.name, script.happens, script.correct] for script in SCRIPTS],
    )


def print_outcome(outcome: RunOutcome) -> None:
    """Print what one run showed."""
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
        print_lines(
            f"{outcome.verdict.value:{_VERDICT_WIDTH}}  {outcome.script.name:{_NAME_WIDTH}}  "
            f"{outcome.ending.seconds:5.1f} s  {struck}".rstrip(),
            *(f"{'':{_VERDICT_WIDTH}}  {printing_shown(sentence)}" for sentence in sentences(outcome)),
        )
    sys.stdout.flush()


def print_summary(certificate: Certificate) -> None:
    counts = certificate.counts
    told = [f"{counts[verdict]} {verdict.value}" for verdict in Judgement if counts[verdict]]
    print_lines(f"{counted(len(certificate.outcomes), 'script')}: {', '.join(told)}.")
