"""Profiles: what a run concentrates on, so that few short runs meet a rare moment.

A seed draws its profile. Half of all runs are ordinary: everything is drawn from the seed. The other runs
have fewer kinds of clients and faults, and more of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.simulation.clients.population import Population
from tests.simulation.clients.share_group import LOCK_MS, ShareTraits
from tests.simulation.clients.traits import Traits

ORDINARY_SHARE: Final = 0.5
TAKEOVERS_SHARE: Final = 0.25
"""The share of runs in a bucket that are about takeovers."""
ZOMBIES_SHARE: Final = 0.15
HISTORIES_SHARE: Final = 0.1
"""The shares of two more profiles among the other runs in a bucket."""
TINY_SEGMENTS: Final = {"internal.segment.bytes": ("2000", "3000")}


@dataclass(frozen=True)
class Profile:
    """A profile. None, or an empty mapping, leaves the choice to the seed.

    `befalls` has the mean seconds between two faults of each kind, `settings` replace drawn settings of the
    gateway, and `topic_configs` the choices for the configs of each topic.
    """

    durations_s: tuple[float, ...] | None = None
    befalls: Mapping[str, float] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_durable: bool | None = None
    flush_s: float | None = None
    """The longest time of most flushes and other work of threads: a power cut then loses much that is written
    and not yet durable.
    """
    populations: tuple[Population, ...] = ()
    topics: tuple[int, int] = (1, 3)
    """The least and the largest number of topics."""
    topic_configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compacted: float = 0.25
    """The share of topics that are compacted."""
    recompressed: float = 0.0
    """The share of runs whose topics recompress batches."""
    refusals: float = 0.0
    """The share of runs in which first batches are refused and sent again: they are damaged, or too large."""
    zombies: bool = False
    """Whether each gateway that is taken over stands still and goes on amid the takeover or after it, and
    both reach the store slowly.
    """


_SLOW_FLUSHES: Final = {"seqgate.flush.inline.max.ms": "0"}
_POWER_CUTS: Final = {"power cut": 1.5, "power cut amid": 4.0}

ORDINARY: Final = Profile(recompressed=0.4, refusals=0.3)
PROFILES: Final[Mapping[str, Profile]] = {
    "power": Profile(
        durations_s=(4.0, 8.0),
        befalls={**_POWER_CUTS, "cut": 2.0},
        settings=_SLOW_FLUSHES,
        is_durable=True,
        flush_s=0.2,
        populations=(
            Population(
                idempotent_producers=2, consumers=1, traits=Traits(padding_bytes=(0, 600, 2_000, 5_000))
            ),
        ),
        topics=(1, 1),
        topic_configs={"internal.segment.bytes": ("20000", "1000000")},
        compacted=0.0,
        recompressed=0.3,
    ),
    "disk": Profile(
        durations_s=(4.0, 8.0),
        befalls={"disk": 1.0, "power cut": 3.0},
        settings=_SLOW_FLUSHES,
        is_durable=True,
        flush_s=0.05,
        populations=(
            Population(idempotent_producers=2, consumers=2),
            Population(
                transactional_ids=2,
                consumers=1,
                groups=1,
                traits=Traits(transaction_pauses_s=(0.02,), transaction_timeouts_ms=(1_000,)),
            ),
        ),
        topics=(1, 2),
        compacted=0.0,
    ),
    "pipelines": Profile(
        durations_s=(4.0, 8.0),
        befalls={"cut": 0.5, "kill": 2.0, "slow network": 2.0},
        populations=(
            Population(
                idempotent_producers=1,
                consumers=1,
                hasty_producers=2,
                traits=Traits(producer_pauses_s=(0.01, 0.05)),
            ),
        ),
        topics=(1, 1),
        compacted=0.0,
        refusals=1.0,
    ),
    "segments": Profile(
        durations_s=(4.0, 8.0),
        befalls={**_POWER_CUTS},
        settings={**_SLOW_FLUSHES, "log.index.interval.bytes": "0"},
        is_durable=True,
        flush_s=0.5,
        populations=(
            Population(
                idempotent_producers=2,
                consumers=1,
                traits=Traits(producer_pauses_s=(0.01, 0.03), padding_bytes=(300, 600)),
            ),
        ),
        topics=(1, 1),
        topic_configs=TINY_SEGMENTS,
        compacted=0.0,
    ),
    "deletions": Profile(
        durations_s=(4.0, 8.0),
        befalls={"kill": 1.5, "power cut": 1.5},
        populations=(
            Population(
                idempotent_producers=1,
                consumers=2,
                administrators=1,
                traits=Traits(change_pauses_s=(0.05, 0.2), deletions=20, padding_bytes=(0, 300)),
            ),
        ),
        topics=(1, 2),
        topic_configs={"internal.segment.bytes": ("2000", "8000")},
        compacted=0.0,
    ),
    "compaction": Profile(
        durations_s=(4.0, 6.0),
        befalls={"kill": 3.0},
        populations=(
            Population(
                transactional_ids=2,
                consumers=1,
                traits=Traits(commits=0.5, transaction_pauses_s=(0.02,), transaction_timeouts_ms=(1_000,)),
            ),
            Population(idempotent_producers=2, consumers=1),
        ),
        topics=(1, 1),
        topic_configs=TINY_SEGMENTS,
        compacted=1.0,
    ),
    "transactions": Profile(
        durations_s=(4.0, 8.0),
        befalls={**_POWER_CUTS, "cut": 1.0},
        settings=_SLOW_FLUSHES,
        is_durable=True,
        flush_s=0.2,
        populations=(
            Population(
                transactional_ids=2,
                consumers=2,
                traits=Traits(
                    transaction_pauses_s=(0.02, 0.1),
                    transaction_timeouts_ms=(1_000, 5_000),
                    transaction_deaths=(0, 0.1),
                ),
            ),
        ),
        topics=(2, 3),
        compacted=0.0,
    ),
    "groups": Profile(
        durations_s=(3.0, 6.0),
        befalls={**_POWER_CUTS, "cut": 2.0},
        settings={**_SLOW_FLUSHES, "group.initial.rebalance.delay.ms": "0"},
        is_durable=True,
        flush_s=0.1,
        populations=(
            Population(
                idempotent_producers=1,
                groups=2,
                traits=Traits(
                    producer_pauses_s=(0.1,),
                    transforming_groups=0.0,
                    member_pauses_s=(0.05,),
                    member_stalls=(0,),
                ),
            ),
        ),
        topics=(1, 1),
        compacted=0.0,
    ),
    "members": Profile(
        durations_s=(8.0, 12.0),
        befalls={"cut": 4.0, "part": 4.0},
        settings={"group.initial.rebalance.delay.ms": "0"},
        populations=(
            Population(
                idempotent_producers=1,
                groups=1,
                traits=Traits(
                    producer_pauses_s=(0.1,),
                    consumer_groups=0.2,
                    transforming_groups=0.0,
                    member_deaths=(0.02,),
                    member_stalls=(0.03, 0.1),
                ),
            ),
            Population(
                idempotent_producers=1,
                groups=2,
                traits=Traits(
                    producer_pauses_s=(0.02,),
                    consumer_groups=1.0,
                    transforming_groups=0.0,
                    member_pauses_s=(0.05,),
                    member_leaves=0.05,
                    member_deaths=(0,),
                    member_stalls=(0,),
                    late_commits=0.2,
                ),
            ),
        ),
        topics=(1, 3),
        compacted=0.0,
    ),
    "names": Profile(
        durations_s=(3.0, 5.0),
        befalls={"kill": 2.0, "cut": 2.0},
        settings={"seqgate.deduplication.snapshot.records": "20"},
        populations=(
            Population(
                consumers=1,
                named_applications=2,
                traits=Traits(
                    application_pauses_s=(0.02, 0.1),
                    application_lives_s=(0.3, 1.0),
                    first_name_epochs=(None, 1),
                    zombies=(0.8,),
                ),
            ),
        ),
        topics=(1, 1),
        compacted=0.0,
    ),
    "names and power": Profile(
        durations_s=(4.0, 8.0),
        befalls=_POWER_CUTS,
        settings={
            **_SLOW_FLUSHES,
            "seqgate.deduplication.snapshot.records": "1",
            "seqgate.deduplication.snapshot.interval.ms": "100",
        },
        is_durable=True,
        flush_s=0.2,
        populations=(
            Population(
                named_applications=2,
                traits=Traits(
                    application_pauses_s=(0.02, 0.1),
                    application_lives_s=(0.3, 1.0),
                    first_name_epochs=(None, 1),
                    zombies=(0.0, 0.8),
                ),
            ),
        ),
        topics=(1, 1),
        compacted=0.0,
    ),
}


TAKEOVERS: Final = Profile(
    durations_s=(8.0, 12.0),
    befalls={"takeover": 1.5},
    populations=(
        Population(
            idempotent_producers=3,
            consumers=1,
            traits=Traits(producer_pauses_s=(0.01, 0.05), padding_bytes=(0, 600)),
        ),
        Population(
            idempotent_producers=2,
            consumers=1,
            administrators=1,
            traits=Traits(producer_pauses_s=(0.02, 0.1), change_pauses_s=(0.05, 0.2), deletions=20),
        ),
    ),
    topics=(1, 2),
    topic_configs={"internal.segment.bytes": ("2000", "8000", "1000000")},
    compacted=0.5,
    refusals=0.5,
)
"""Runs in a bucket, in which gateways take over from others that run."""

ZOMBIES: Final = replace(
    TAKEOVERS,
    durations_s=(12.0, 15.0),
    befalls={"takeover": 1.5, "lost disk": 4.0},
    populations=(
        Population(
            idempotent_producers=3,
            administrators=2,
            traits=Traits(
                producer_pauses_s=(0.01, 0.05), padding_bytes=(600,), change_pauses_s=(0.05,), deletions=100
            ),
        ),
    ),
    topics=(1, 1),
    topic_configs={"internal.segment.bytes": ("2000",)},
    compacted=0.3,
    settings={
        "log.cleaner.backoff.ms": "100",
        "log.retention.check.interval.ms": "100",
        "log.segment.delete.delay.ms": "0",
    },
    zombies=True,
)
"""Runs in a bucket, in which a gateway goes on with its uploads and deletions while another one reads the
bucket slowly.
"""

HISTORIES: Final = Profile(
    durations_s=(8.0, 12.0),
    befalls={"stop": 2.0, "lost disk": 6.0},
    settings={"seqgate.cluster.cache.bytes": "0", "seqgate.cluster.upload.interval.ms": "100"},
    populations=(
        Population(
            idempotent_producers=2,
            consumers=3,
            traits=Traits(producer_pauses_s=(0.01, 0.05), padding_bytes=(0, 600), reads_again=0.5),
        ),
    ),
    topics=(1, 2),
    topic_configs=TINY_SEGMENTS,
    compacted=0.25,
)
"""Runs in a bucket, in which the disk keeps nothing that the bucket has, and consumers read all of the
history again and again.
"""

BUCKET_PROFILES: Final = {"takeovers": TAKEOVERS, "zombies": ZOMBIES, "histories": HISTORIES}

_SHARES: Final = Profile(
    durations_s=(4.0, 8.0),
    settings={
        "group.share.min.record.lock.duration.ms": str(LOCK_MS),
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.segment.bytes": "20000",
    },
    is_durable=True,
    populations=(
        Population(
            idempotent_producers=2,
            traits=Traits(producer_pauses_s=(0.1, 0.3), padding_bytes=(0, 0, 300)),
            shares=ShareTraits(),
        ),
    ),
    topics=(1, 2),
    compacted=0.0,
)
SHARE_PROFILES: Final[Mapping[str, Profile]] = {
    "kills": replace(_SHARES, befalls={"kill": 2.0, "kill amid": 3.0, "stop": 4.0}),
    "power": replace(
        _SHARES,
        befalls={**_POWER_CUTS, "cut": 3.0},
        settings={**_SHARES.settings, **_SLOW_FLUSHES},
        flush_s=0.2,
    ),
    "network": replace(_SHARES, befalls={"cut": 2.0, "part": 3.0, "slow network": 3.0, "slow threads": 3.0}),
    "calm": replace(
        _SHARES,
        befalls={"kill": 6.0},
        populations=(
            replace(_SHARES.populations[0], shares=ShareTraits(refusals=0.5, member_deaths=(0.0, 0.01))),
        ),
    ),
}
"""Runs with share groups on one gateway. No clock jumps: delays are checked to the millisecond."""
SHARES_IN_CLUSTER: Final = "cluster"
CLUSTERED_SHARES: Final = 0.25
"""The share of runs with share groups that have several gateways."""


def share_profile_name_of(seed: int) -> str:
    """Draw the name of the profile of a seed with share groups."""
    chance = Random(f"share profile {seed}")
    if chance.random() < CLUSTERED_SHARES:
        return SHARES_IN_CLUSTER
    return chance.choice(list(SHARE_PROFILES))


def profile_name_of(seed: int) -> str:
    """Draw the name of a seed's profile; the empty name is the ordinary run's."""
    chance = Random(f"profile {seed}")
    return "" if chance.random() < ORDINARY_SHARE else chance.choice(list(PROFILES))


def bucket_profile_name_of(seed: int) -> str:
    """Draw the name of the profile of a seed in a bucket. Most runs have the profile that they have without a
    bucket.
    """
    if Random(f"takeovers {seed}").random() < TAKEOVERS_SHARE:
        return "takeovers"
    drawn = Random(f"profile of {seed}").random()
    if drawn < ZOMBIES_SHARE:
        return "zombies"
    return "histories" if drawn < ZOMBIES_SHARE + HISTORIES_SHARE else profile_name_of(seed)


def profile_of(seed: int) -> Profile:
    return PROFILES.get(profile_name_of(seed), ORDINARY)
