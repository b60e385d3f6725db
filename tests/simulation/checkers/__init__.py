"""Judges a history: one pure function per promise.

Every breach is a sentence with the time, the records and the offsets.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.checkers.committed_offsets import committed_offsets
from tests.simulation.checkers.dense import dense
from tests.simulation.checkers.facts import Checker, Facts, place
from tests.simulation.checkers.groups import early_owners, old_generations, owners, stale_epochs
from tests.simulation.checkers.latest import latest
from tests.simulation.checkers.leaders import deposed, epochs, leaders
from tests.simulation.checkers.named import (
    named_aborted,
    named_doubled,
    named_lost,
    named_order,
    named_places,
)
from tests.simulation.checkers.named_state import names_fenced, names_told
from tests.simulation.checkers.order import order
from tests.simulation.checkers.producer_ids import fencing, producer_ids
from tests.simulation.checkers.repeatable import compaction, repeatable, whole_answers
from tests.simulation.checkers.shares import delivered_too_often, done_again, held_up, letters, retried_early
from tests.simulation.checkers.stored import acknowledged_offsets, doubled, lost, misplaced
from tests.simulation.checkers.transactions import aborted_data, ends, half_seen, outside
from tests.simulation.checkers.watermarks import beyond, log_start, watermarks
from tests.simulation.history import History, Refused, Unexpected


def unexpected(facts: Facts) -> list[str]:
    """Find answers that no client should get, such as refused batches for whose refusal the producer knows no
    reason.
    """
    return [f"{event.at_ms} ms: {event.client}: {event.sentence}" for event in facts.all(Unexpected)] + [
        f"{event.at_ms} ms: {event.producer}/{event.incarnation} was refused sequence {event.base_sequence} "
        f"of producer id {event.producer_id}, epoch {event.producer_epoch}, in {place(event.partition)}: "
        f"{event.error}"
        for event in facts.all(Refused)
        if not event.explained
    ]


CHECKERS: Final[dict[str, Checker]] = {
    checker.__name__: checker
    for checker in (
        lost,
        doubled,
        acknowledged_offsets,
        misplaced,
        order,
        dense,
        watermarks,
        beyond,
        log_start,
        latest,
        leaders,
        deposed,
        epochs,
        repeatable,
        whole_answers,
        compaction,
        producer_ids,
        fencing,
        aborted_data,
        half_seen,
        outside,
        ends,
        committed_offsets,
        owners,
        early_owners,
        old_generations,
        stale_epochs,
        named_lost,
        named_places,
        named_doubled,
        named_order,
        named_aborted,
        names_told,
        names_fenced,
        done_again,
        retried_early,
        delivered_too_often,
        letters,
        held_up,
        unexpected,
    )
}


def check(history: History) -> dict[str, list[str]]:
    """Return the breaches that each checker found, by its name; checkers without a breach are left out."""
    facts = Facts(history)
    found = {name: checker(facts) for name, checker in CHECKERS.items()}
    return {name: breaches for name, breaches in found.items() if breaches}


def breaches(history: History) -> list[str]:
    """Return every breach as a sentence that begins with the promise it breaks."""
    return [f"{name}: {sentence}" for name, sentences in check(history).items() for sentence in sentences]
