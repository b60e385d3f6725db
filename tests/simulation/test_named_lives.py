"""A life of a named application in transactions: what it makes of batches that it has given up."""

from __future__ import annotations

from random import Random

from tests.simulation.clients.named_lines import Source, Writer
from tests.simulation.clients.named_lives import Position, Progress, Task, TransactionalLife
from tests.simulation.clients.surroundings import Surroundings, Topic
from tests.simulation.clients.transactional_producer import TransactionHabits
from tests.simulation.history import History


def _life() -> tuple[Source, TransactionalLife]:
    surroundings = Surroundings("gateway", 9092, History(), lambda: 0, float("inf"))
    surroundings.topics["topic"] = Topic("topic", "id", 2)
    source = Source("application", "topic", 2, Random(1))
    task = Task(source, Position(0), Progress(), pause_s=0.1, max_lines=2)
    life = TransactionalLife(
        surroundings,
        Writer("application", 1),
        Random(1),
        task,
        transactional_id="application",
        habits=TransactionHabits(),
    )
    return source, life


async def test_a_transaction_without_one_of_its_batches_is_aborted() -> None:
    source, life = _life()
    life._lines.enqueue_lines([source.line(0)])
    life._lines.delivery_timeout_s = -1.0
    life._expire()
    assert life._lines.is_settled
    assert life._abort_wanted


async def test_the_end_of_a_transaction_may_fence_its_own_batches() -> None:
    _, life = _life()
    life._start_clock()
    assert not life._lines._may_be_fenced()
    life._is_ending = True
    assert life._lines._may_be_fenced()
    assert not life._may_be_fenced()
