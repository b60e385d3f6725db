"""Prints a certification for people: a line for each script when it ends, and a summary."""

from __future__ import annotations

import sys
from typing import Final

from gateway.admin.printing import Column, counted, print_lines, print_table, shown
from gateway.certify.certification import Certificate
from gateway.certify.judgement import Verdict
from gateway.certify.report import sentences
from gateway.certify.run import BURSTS, Outcome
from gateway.certify.scripts import CALM, SCRIPTS

_NAME_WIDTH: Final = max(len(script.name) for script in SCRIPTS)
_VERDICT_WIDTH: Final = max(map(len, Verdict))


def print_scripts() -> None:
    """Print the table of scripts."""
    print_table(
        [Column("script"), Column("what happens"), Column("a correct producer")],
        [[script.name, script.happens, script.correct] for script in SCRIPTS],
    )


def print_outcome(outcome: Outcome) -> None:
    """Print what one run showed."""
    if outcome.script is CALM:
        print_lines(
            f"without a fault: {counted(outcome.sent, 'record')} in "
            f"{counted(outcome.requests, 'Produce request')}, {outcome.ending.seconds:.1f} s"
        )
        if outcome.requests_amid < BURSTS // 4:
            print_lines(
                "Most scripts strike a later batch, and this application sends nearly everything at once: let it send each value as it reads it."
            )
    else:
        struck = ", ".join(f"{each.what} ×{each.times}" for each in outcome.struck if each.times)
        print_lines(
            f"{outcome.verdict.value:{_VERDICT_WIDTH}}  {outcome.script.name:{_NAME_WIDTH}}  "
            f"{outcome.ending.seconds:5.1f} s  {struck}".rstrip(),
            *(f"{'':{_VERDICT_WIDTH}}  {shown(sentence)}" for sentence in sentences(outcome)),
        )
    sys.stdout.flush()


def print_summary(certificate: Certificate) -> None:
    """Print how many scripts have which verdict."""
    counts = certificate.counts
    told = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    print_lines(f"{counted(len(certificate.outcomes), 'script')}: {', '.join(told)}.")
