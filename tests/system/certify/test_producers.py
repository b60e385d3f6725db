"""Each mistake of a producer is found by the script that is made for it, and a right producer passes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from seqgate.gateway.certify.command import Judgement, NotReady, RunOutcome, Setup, run_scripts
from seqgate.gateway.certify.scripts import SCRIPTS, named
from tests.support.gateway_process import REPOSITORY

PROGRAM = Path(__file__).with_name("producer.py")
PAGE = (REPOSITORY / "docs" / "certify.md").read_text()
QUICK = [
    "first-answer-lost",
    "answers-lost-amid-requests",
    "error-amid-requests",
    "refused-for-good",
    "topic-created-late",
    "broker-killed",
    "power-cut",
    "partition-offline",
    "producer-forgotten",
    "random-1",
]
"""The scripts through which a right producer goes here: one of each kind, and none that waits for a request
timeout.
"""


def outcomes_of(mode: str, scripts: list[str], **setup: float) -> dict[str, RunOutcome]:
    """Run the program through scripts; return the outcomes by the names of the scripts."""
    command = shlex.join([sys.executable, str(PROGRAM), mode])
    reported: list[RunOutcome] = []
    certificate = run_scripts(
        Setup(command, records=100, **setup),  # type: ignore[arg-type]
        named(scripts),
        jobs=2,
        report=reported.append,
    )
    assert [each.script.name for each in certificate.outcomes] == [each.name for each in named(scripts)]
    assert len(reported) == 1 + len(scripts)
    return {outcome.script.name: outcome for outcome in certificate.outcomes}


def test_a_right_producer_passes() -> None:
    """Its topic has three partitions: records have an order in each of them."""
    outcomes = outcomes_of("right", QUICK, partitions=3)
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == dict.fromkeys(
        QUICK, Judgement.PASSED
    )
    for name, outcome in outcomes.items():
        assert all(each.times for each in outcome.struck), name
        if not outcome.script.may_give_up:
            assert (outcome.stored, outcome.ending.exit_code) == (100, 0), name


def test_a_producer_without_idempotence_doubles_and_reorders() -> None:
    outcomes = outcomes_of(
        "unidempotent", ["first-answer-lost", "request-timed-out", "error-amid-requests", "producer-id-lost"]
    )
    for name in ("first-answer-lost", "request-timed-out"):
        assert outcomes[name].verdict is Judgement.FAILED
        doubled = outcomes[name].findings.doubled
        assert doubled
        assert all(len({record.offset for record in each.records}) == 2 for each in doubled)
        assert not outcomes[name].findings.lost
    assert outcomes["error-amid-requests"].verdict is Judgement.FAILED
    assert outcomes["error-amid-requests"].findings.reordered
    assert outcomes["producer-id-lost"].verdict is Judgement.NOT_STRUCK


def test_a_producer_that_ignores_failures_loses() -> None:
    (outcome,) = outcomes_of("careless", ["refused-for-good"]).values()
    assert outcome.verdict is Judgement.FAILED
    assert outcome.findings.lost
    assert len(outcome.findings.lost) == 100 - outcome.stored


def test_a_producer_that_claims_too_early_loses() -> None:
    (outcome,) = outcomes_of("acknowledging", ["refused-for-good"]).values()
    assert outcome.verdict is Judgement.FAILED
    assert outcome.ending.exit_code == 1
    assert outcome.findings.lost


def test_a_producer_that_does_not_flush_fails_at_once() -> None:
    with pytest.raises(NotReady, match=r"fails without a fault: lost \d+: .*; \d+ of 100 records are stored"):
        outcomes_of("hasty", ["first-answer-lost"])


def test_a_producer_that_reports_a_failure_gives_up() -> None:
    (outcome,) = outcomes_of("impatient", ["replicas-missing"]).values()
    assert outcome.verdict is Judgement.GAVE_UP
    assert outcome.ending.exit_code == 1
    assert outcome.stored < 100
    assert not outcome.findings


def test_a_producer_that_hangs_is_killed() -> None:
    (outcome,) = outcomes_of("stuck", ["refused-for-good"], timeout_s=30.0).values()
    assert outcome.verdict is Judgement.HUNG
    assert outcome.ending.exit_code is None


def test_a_producer_that_reads_everything_first_is_not_struck() -> None:
    command = shlex.join([sys.executable, str(PROGRAM), "collecting"])
    setup = Setup(command, timeout_s=60.0)
    certificate = run_scripts(setup, named(["middle-answer-lost"]), jobs=1, report=lambda _: None)
    assert (certificate.calm.reads_along, certificate.calm.requests_amid) == (False, 0)
    assert certificate.outcomes[0].verdict is Judgement.NOT_STRUCK
    assert certificate.outcomes[0].stored == certificate.outcomes[0].sent


def test_the_program_of_the_page_passes(tmp_path: Path) -> None:
    (_, program), *_ = [part.split("\n", 1) for part in PAGE.split("```")[1::2] if part.startswith("python")]
    path = tmp_path / "send.py"
    path.write_text(program)
    setup = Setup(shlex.join([sys.executable, str(path)]))
    certificate = run_scripts(setup, SCRIPTS[:2], jobs=2, report=lambda _: None)
    assert certificate.is_good()
    assert certificate.calm.requests_amid > 5
