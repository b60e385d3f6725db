"""Unmodified clients go through a few scripts: idempotent ones pass, one without idempotence doubles."""

from __future__ import annotations

import pytest

from seqgate.gateway.certify.command import Judgement, Setup, run_scripts
from seqgate.gateway.certify.scripts import named
from tests.compat.certify.programs import COLUMNS

SCRIPTS = named(["first-answer-lost", "request-timed-out", "error-amid-requests", "broker-killed"])
PROGRAMS = {program.name: program for program in COLUMNS}


@pytest.mark.parametrize("name", ["java default", "librdkafka idempotent"])
def test_an_idempotent_producer_passes(name: str) -> None:
    certificate = run_scripts(Setup(PROGRAMS[name].command()), SCRIPTS, jobs=2, report=lambda _: None)
    assert {each.script.name: each.verdict for each in certificate.outcomes} == dict.fromkeys(
        (script.name for script in SCRIPTS), Judgement.PASSED
    )
    assert all(each.stored == each.sent for each in certificate.outcomes)


def test_one_without_idempotence_doubles() -> None:
    setup = Setup(PROGRAMS["librdkafka default"].command())
    certificate = run_scripts(setup, SCRIPTS[:2], jobs=2, report=lambda _: None)
    assert all(each.findings.doubled for each in certificate.outcomes)
