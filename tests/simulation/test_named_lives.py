"""A life of a named application never leaves a line out, also where the producer gives a batch up that was never sent."""

from __future__ import annotations

from random import Random

from tests.simulation.clients.named_lines import Source, Writer
from tests.simulation.clients.named_lives import Position, Progress, Task, TransactionalLife
from tests.simulation.clients.surroundings import Surroundings, Topic
from tests.simulation.clients.transactional_producer import TransactionHabits
from tests.simulation.history import History


async def test_a_transaction_without_one_of_its_batches_is_aborted() -> None:
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
    life._lines.enqueue_lines([source.line(0)])
    life._lines.delivery_timeout_s = -1.0
    life._expire()
    assert life._lines.is_settled
    assert life._abort_wanted
