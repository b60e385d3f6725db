"""The clients of one run, drawn from a seed: their kinds, numbers and topics, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.clients.administrator import COMPRESSION_TYPE, DEDUPLICATE, compression_types
from tests.simulation.clients.final_read import FinalReader
from tests.simulation.clients.population import Client, Population, clients_of
from tests.simulation.clients.share_group import ShareGroup
from tests.simulation.clients.surroundings import ClusterOfGateways, Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.history import History
from tests.simulation.process import Process
from tests.simulation.profiles import ORDINARY, Profile

COMPACT = "compact"
MAX_MESSAGE_BYTES = "max.message.bytes"
FEW_BYTES = "800"
"""A limit for which producers split their larger batches; every single record fits."""
FLIPS = 0.5
LEVELS = {"gzip": ("-1", "1", "9"), "lz4": ("1", "9", "17"), "zstd": ("-5", "3", "19")}
SETTLE_S = 500.0
"""Seconds in which clients must finish and open transactions end after the last fault."""

QUIET_S = 2.0


@dataclass(frozen=True)
class Workload:
    """The topics and clients of a run; `topics` exist before the clients start."""

    seed: int
    topics: tuple[TopicPlan, ...]
    population: Population
    zstd: bool = False
    flips: float = 0.0
    """The chance that the first batch of a producer epoch comes damaged."""
    settle_s: float = SETTLE_S
    quiet_s: float = 0.0
    """Seconds before the last reading, in which requests of closed connections end: their producers gave them
    up.
    """

    @classmethod
    def from_seed(cls, seed: int, profile: Profile = ORDINARY) -> Workload:
        random = Random(f"workload {seed}")
        topics = tuple(_topic(random, number, profile) for number in range(random.randint(*profile.topics)))
        population, zstd = Population.of(random), random.random() < 0.5
        names = Random(f"names {seed}")
        applications = names.choice((0, 0, 1, 2))
        if profile.populations:
            population = random.choice(profile.populations)
            applications = population.named_applications
        if applications:
            topics = _deduplicating(topics, names)
            population = replace(population, named_applications=applications)
        codecs = Random(f"codecs {seed}")
        if codecs.random() < profile.recompressed:
            topics = tuple(_recompressing(topic, codecs, zstd=zstd) for topic in topics)
        flips = 0.0
        if Random(f"refusals {seed}").random() < profile.refusals:
            flips, topics = FLIPS, tuple(_limited(topic) for topic in topics)
        return cls(seed, topics, population, zstd, flips, quiet_s=QUIET_S)


def _topic(random: Random, number: int, profile: Profile) -> TopicPlan:
    configs = {
        "internal.segment.bytes": str(random.choice((4_000, 20_000, 1_000_000))),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": random.choice(("0", "2000", "86400000")),
    }
    if random.random() < profile.compacted:
        configs["cleanup.policy"] = COMPACT
    configs |= {name: random.choice(values) for name, values in profile.topic_configs.items()}
    return TopicPlan(f"topic-{number}", random.randint(1, 3), configs)


def _deduplicating(topics: tuple[TopicPlan, ...], random: Random) -> tuple[TopicPlan, ...]:
    """Choose the topics that deduplicate, at least one."""
    chosen = {random.choice(topics).name, *(topic.name for topic in topics if random.random() < 0.3)}
    return tuple(
        replace(topic, configs={**topic.configs, DEDUPLICATE: "true"}) if topic.name in chosen else topic
        for topic in topics
    )


def _recompressing(topic: TopicPlan, random: Random, *, zstd: bool) -> TopicPlan:
    """Store the topic's batches in one codec, at any level that the codec has."""
    codec = random.choice(compression_types(zstd=zstd))
    configs = {**topic.configs, COMPRESSION_TYPE: codec}
    if codec in LEVELS:
        configs[f"compression.{codec}.level"] = random.choice(LEVELS[codec])
    return replace(topic, configs=configs)


def _limited(topic: TopicPlan) -> TopicPlan:
    """Let a topic take small batches only. Applications of producer names can't split theirs."""
    if DEDUPLICATE in topic.configs:
        return topic
    return replace(topic, configs={**topic.configs, MAX_MESSAGE_BYTES: FEW_BYTES})


def nobody(_: Surroundings) -> Iterable[tuple[str, Client]]:
    """Return no further clients."""
    return ()


async def run(
    workload: Workload,
    address: tuple[str, int],
    history: History,
    duration_s: float,
    wall_ms: Callable[[], int],
    on_settling: Callable[[], Awaitable[None]] | None = None,
    on_created: Callable[[], None] | None = None,
    cluster: ClusterOfGateways | None = None,
    others: Callable[[Surroundings], Iterable[tuple[str, Client]]] = nobody,
) -> None:
    """Run the clients: they begin nothing new after `duration_s`, and then finish.

    With `on_created`, which is called when the topics exist, the time of the clients begins there.
    `on_settling` is awaited when the clients' time is over; from then on no fault may happen. A client that
    does not finish within SETTLE_S is a breach in the history, never an exception.
    """
    loop = asyncio.get_running_loop()
    end_at = loop.time() + duration_s
    padding_bytes = workload.population.traits.padding_bytes
    surroundings = Surroundings(
        *address,
        history,
        wall_ms,
        end_at,
        zstd=workload.zstd,
        padding_bytes=padding_bytes,
        flips=workload.flips,
        cluster=cluster,
    )
    history.compacted = frozenset(
        topic.name for topic in workload.topics if topic.configs.get("cleanup.policy") == COMPACT
    )
    history.named = frozenset(topic.name for topic in workload.topics if DEDUPLICATE in topic.configs)
    history.recompressed = frozenset(
        topic.name for topic in workload.topics if COMPRESSION_TYPE in topic.configs
    )
    await create_topics(surroundings, list(workload.topics), Random(f"topics {workload.seed}"))
    sharing = await _share_groups(workload, surroundings)
    if on_created is not None:
        surroundings.end_at = loop.time() + duration_s
        on_created()
    tasks = [
        Process(name).begin(client)
        for name, client in (
            *clients_of(workload.population, Random(f"clients {workload.seed}"), surroundings),
            *others(surroundings),
        )
    ]
    lasting = [Process(name).begin(client) for group in sharing for name, client in group.clients()]
    await asyncio.sleep(max(0.0, surroundings.end_at - loop.time()))
    if on_settling is not None:
        await on_settling()
    await _come_to_rest(tasks, workload, surroundings)
    surroundings.others_are_done = True
    await _come_to_rest(lasting, workload, surroundings)
    await asyncio.sleep(workload.quiet_s)
    await FinalReader(surroundings, Random(f"final {workload.seed}"), workload.settle_s).run()


async def _share_groups(workload: Workload, surroundings: Surroundings) -> list[ShareGroup]:
    """Return the share groups of the run, which are ready for their members."""
    traits, random = workload.population.shares, Random(f"shares {workload.seed}")
    groups = []
    for number in range(0 if traits is None else random.choice(traits.groups)):
        assert traits is not None
        group = ShareGroup(surroundings, f"share-{number}", Random(random.getrandbits(64)), traits)
        await group.prepare()
        groups.append(group)
    return groups


async def _come_to_rest(
    tasks: list[asyncio.Task[None]], workload: Workload, surroundings: Surroundings
) -> None:
    """Wait until the clients have finished. Raises the error of a client."""
    if not tasks:
        return
    _, unsettled = await asyncio.wait(tasks, timeout=workload.settle_s)
    for task in tasks:
        if task in unsettled:
            surroundings.unexpected(task.get_name(), f"has not come to rest after {workload.settle_s} s")
            task.cancel()
        elif (error := task.exception()) is not None:
            raise error
