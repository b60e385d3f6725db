"""The clients of one run, from a seed: which, how many, on which topics; and how they come to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.final_read import FinalReader
from tests.simulation.clients.idempotent_producer import Habits, IdempotentProducer
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.clients.transactional_producer import TransactionalProducer, TransactionHabits
from tests.simulation.history import History
from tests.simulation.process import Process

SETTLE_S = 500.0
"""How long clients may take to come to rest, and open transactions to end, when nothing fails any more."""
Client = Coroutine[Any, Any, None]


@dataclass(frozen=True)
class Workload:
    """How many clients of each kind; `topics` exist before they start."""

    seed: int
    topics: tuple[TopicPlan, ...]
    idempotent_producers: int
    transactional_ids: int
    consumers: int
    zstd: bool = False
    settle_s: float = SETTLE_S

    @classmethod
    def from_seed(cls, seed: int) -> Workload:
        random = Random(f"workload {seed}")
        topics = tuple(
            TopicPlan(
                f"topic-{number}",
                random.randint(1, 3),
                {"internal.segment.bytes": str(random.choice((2_000, 20_000, 1_000_000)))},
            )
            for number in range(random.randint(1, 3))
        )
        return cls(
            seed,
            topics,
            random.randint(0, 3),
            random.randint(0, 2),
            random.randint(1, 3),
            random.random() < 0.5,
        )


async def run(
    workload: Workload,
    address: tuple[str, int],
    history: History,
    duration_s: float,
    wall_ms: Callable[[], int],
    on_settling: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """The whole life of the clients: they begin nothing new after `duration_s` and then come to rest.

    `on_settling` is awaited when the clients' time is over; from then on the gateway has to stay well. What cannot
    come to rest within the workload's patience is a breach in the history, never an exception.
    """
    loop = asyncio.get_running_loop()
    end_at = loop.time() + duration_s
    surroundings = Surroundings(*address, history, wall_ms, end_at, zstd=workload.zstd)
    await create_topics(surroundings, list(workload.topics), Random(f"topics {workload.seed}"))
    tasks = [Process(name).begin(client) for name, client in _clients(workload, surroundings)]
    await asyncio.sleep(max(0.0, surroundings.end_at - loop.time()))
    if on_settling is not None:
        await on_settling()
    _, unsettled = await asyncio.wait(tasks, timeout=workload.settle_s)
    for task in tasks:
        if task in unsettled:
            surroundings.unexpected(task.get_name(), f"has not come to rest after {workload.settle_s} s")
            task.cancel()
        elif (error := task.exception()) is not None:
            raise error
    await FinalReader(surroundings, Random(f"final {workload.seed}"), workload.settle_s).run()


def _clients(workload: Workload, surroundings: Surroundings) -> list[tuple[str, Client]]:
    clients: list[tuple[str, Client]] = []
    partitions = surroundings.partitions()
    for number in range(workload.idempotent_producers):
        name = f"idempotent-{number}"
        random = Random(f"{name} {workload.seed}")
        habits = Habits(
            random.choice((0.01, 0.1, 0.5)),
            random.choice((1, 5, 20)),
            local_bump=random.random() < 0.7,
        )
        clients.append((name, IdempotentProducer(surroundings, name, random, partitions, habits).run()))
    for number in range(workload.transactional_ids):
        transactional_id = f"transactional-{number}"
        timeout_ms = Random(f"{transactional_id} {workload.seed}").choice((1_000, 5_000, 60_000))
        for instance in ("a", "b"):
            name = f"{transactional_id}{instance}"
            random = Random(f"{name} {workload.seed}")
            if instance == "b" and random.random() < 0.5:
                continue
            transactions = TransactionHabits(
                random.choice((0.02, 0.1, 0.5)), timeout_ms=timeout_ms, death_chance=random.choice((0, 0.03))
            )
            transactional = TransactionalProducer(
                surroundings, name, random, transactional_id, partitions, transactions
            )
            clients.append((name, transactional.run()))
    for number in range(workload.consumers):
        name = f"consumer-{number}"
        random = Random(f"{name} {workload.seed}")
        committed = random.random() < 0.5
        clients.append((name, Consumer(surroundings, name, random, read_committed=committed).run()))
    return clients
