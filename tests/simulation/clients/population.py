"""Chooses the clients of a run: how many of each kind, and their habits."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.clients.administrator import Administrator
from tests.simulation.clients.consumer import Consumer, Curiosity
from tests.simulation.clients.group_member import GroupMember, MemberHabits
from tests.simulation.clients.hasty_producer import HastyProducer
from tests.simulation.clients.idempotent_producer import Habits, IdempotentProducer
from tests.simulation.clients.named_application import ApplicationHabits, NamedApplication
from tests.simulation.clients.named_lines import Source
from tests.simulation.clients.offsets_watcher import OffsetsWatcher
from tests.simulation.clients.share_group import ShareTraits
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.traits import ORDINARY, Traits
from tests.simulation.clients.transactional_producer import TransactionalProducer, TransactionHabits

Client = Coroutine[Any, Any, None]


@dataclass(frozen=True)
class Population:
    """The number of clients of each kind. A transactional id has one or two instances, a group one to three
    members.
    """

    idempotent_producers: int = 0
    transactional_ids: int = 0
    consumers: int = 0
    groups: int = 0
    administrators: int = 0
    hasty_producers: int = 0
    named_applications: int = 0
    traits: Traits = ORDINARY
    shares: ShareTraits | None = None
    """The share groups, if there are any."""

    @classmethod
    def of(cls, random: Random) -> Population:
        return cls(
            idempotent_producers=random.randint(0, 3),
            transactional_ids=random.randint(0, 2),
            consumers=random.randint(1, 3),
            groups=random.choice((0, 1, 1, 2)),
            administrators=random.choice((0, 1)),
            hasty_producers=random.choice((0, 0, 1)),
        )


def clients_of(
    population: Population, random: Random, surroundings: Surroundings
) -> Iterator[tuple[str, Client]]:
    """Return each client's name and coroutine; every client has its own random numbers."""
    traits = population.traits
    for number in range(population.idempotent_producers):
        name = f"idempotent-{number}"
        yield name, _idempotent(name, _own(random), traits, surroundings)
    for number in range(population.transactional_ids):
        transactional_id = f"transactional-{number}"
        timeout_ms = random.choice(traits.transaction_timeouts_ms)
        for instance in "ab"[: random.randint(1, 2)]:
            name = f"{transactional_id}{instance}"
            own = _own(random)
            transactional = _transactional(name, own, transactional_id, timeout_ms, traits, surroundings)
            yield name, transactional.run()
    for number in range(population.consumers):
        name, own = f"consumer-{number}", _own(random)
        curiosity = Curiosity(read_again=traits.reads_again)
        read_committed = own.random() < 0.5
        yield (
            name,
            Consumer(surroundings, name, own, read_committed=read_committed, curiosity=curiosity).run(),
        )
    for number in range(population.groups):
        yield from _group(f"group-{number}", _own(random), traits, surroundings)
    for number in range(population.hasty_producers):
        name, own = f"hasty-{number}", _own(random)
        yield name, HastyProducer(surroundings, name, own, own.choice((0.005, 0.05, 0.3))).run()
    for number in range(population.named_applications):
        name = f"application-{number}"
        yield name, _application(name, _own(random), traits, surroundings)
    for number in range(population.administrators):
        name, own = f"administrator-{number}", _own(random)
        yield name, _administrator(name, own, traits, surroundings)


def _own(random: Random) -> Random:
    return Random(random.getrandbits(64))


def _idempotent(name: str, random: Random, traits: Traits, surroundings: Surroundings) -> Client:
    habits = Habits(
        random.choice(traits.producer_pauses_s), random.choice((1, 5, 20)), local_bump=random.random() < 0.7
    )
    return IdempotentProducer(surroundings, name, random, habits).run()


def _application(name: str, random: Random, traits: Traits, surroundings: Surroundings) -> Client:
    topic = surroundings.topics[random.choice(sorted(surroundings.history.named))]
    source = Source(name, topic.name, topic.partitions, _own(random))
    surroundings.names[name] = source.places
    one_kind = random.random() < 0.5
    habits = ApplicationHabits(
        kinds=(random.choice(traits.application_kinds),) if one_kind else traits.application_kinds,
        pause_s=random.choice(traits.application_pauses_s),
        max_lines=random.choice((1, 4, 10)),
        life_s=random.choice(traits.application_lives_s),
        first_epoch=random.choice(traits.first_name_epochs),
        zombie_chance=random.choice(traits.zombies),
        timeout_ms=random.choice((1_000, 5_000, 20_000)),
    )
    return NamedApplication(surroundings, source, random, habits).run()


def _administrator(name: str, random: Random, traits: Traits, surroundings: Surroundings) -> Client:
    compacted = surroundings.history.compacted
    others = [topic for topic in surroundings.topics if topic not in compacted]
    retained = frozenset(others[-1:] if len(others) > 1 and random.random() < 0.5 else ())
    pause_s = random.choice(traits.change_pauses_s)
    named = sorted(surroundings.history.named)
    switched = frozenset(topic for topic in named if random.random() < 0.3)
    if surroundings.cluster is not None:
        switched = frozenset()  # no client knows when the last gateway has heard of the change
    surroundings.history.switched |= switched
    return Administrator(
        surroundings, name, random, pause_s, compacted, retained, switched, deletions=traits.deletions
    ).run()


def _transactional(
    name: str,
    random: Random,
    transactional_id: str,
    timeout_ms: int,
    traits: Traits,
    surroundings: Surroundings,
) -> TransactionalProducer:
    habits = TransactionHabits(
        random.choice(traits.transaction_pauses_s),
        timeout_ms=timeout_ms,
        commit_chance=traits.commits,
        death_chance=random.choice(traits.transaction_deaths),
    )
    return TransactionalProducer(surroundings, name, random, transactional_id, habits)


def _group(
    group: str, random: Random, traits: Traits, surroundings: Surroundings
) -> Iterator[tuple[str, Client]]:
    by_epoch = random.random() < traits.consumer_groups
    transforms = random.random() < traits.transforming_groups
    read_committed = transforms or random.random() < 0.5
    for number in range(random.randint(1, 3)):
        name, own = f"{group}-member-{number}", _own(random)
        transformer = None
        if transforms:
            # Each member has a transactional id of its own, as in Kafka Streams.
            transformer_name = f"{name}-out"
            timeout_ms = own.choice(traits.transaction_timeouts_ms)
            transformer = _transactional(
                transformer_name, _own(own), transformer_name, timeout_ms, traits, surroundings
            )
        habits = MemberHabits(
            own.choice(traits.member_pauses_s),
            leave_chance=traits.member_leaves,
            death_chance=own.choice(traits.member_deaths),
            stall_chance=own.choice(traits.member_stalls),
            late_commit_chance=traits.late_commits,
        )
        member = GroupMember(
            surroundings,
            name,
            own,
            group,
            habits,
            by_epoch=by_epoch,
            read_committed=read_committed,
            transformer=transformer,
        )
        yield name, member.run()
    name = f"{group}-watcher"
    yield name, OffsetsWatcher(surroundings, name, _own(random), group).run()
