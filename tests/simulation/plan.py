"""The plan of a seed: the settings of the gateway, the length of the run, and how often each fault happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.profiles import (
    BUCKET_PROFILES,
    ORDINARY,
    SHARE_PROFILES,
    Profile,
    bucket_profile_name_of,
    profile_of,
    share_profile_name_of,
)
from tests.support.simulated_objects import CALM, Faults

HOST = "gateway"
PORT = 9092
LONG_MAX = 2**63 - 1
PAGE_CACHE = LONG_MAX
RARE_UPLOADS_MS: Final = 600_000
RARE_SWEEPS_MS: Final = 86_400_000
LEASE_MS: Final = 900
"""The lease of a session in a bucket. A takeover waits for it, and clients wait meanwhile."""


@dataclass(frozen=True)
class Plan:
    """A plan. `befalls` has the mean seconds between two faults of each kind that happens in this run."""

    duration_s: float
    settings: tuple[str, ...]
    befalls: dict[str, float]
    one_byte_portions: float = 0.0
    cold_reads: bool = False
    """Whether the disk reports which data is cached, so that the gateway reads other data in threads."""
    max_descriptors: int | None = None
    profile: Profile = ORDINARY
    store: Faults | None = None
    """The faults of the object store, where records are durable in a bucket; None where they are on the local
    disk.
    """

    faults_need_topics: bool = False
    """Whether no fault happens before the topics exist: while a store is away, nothing else would happen in a
    short run.
    """

    rests: bool = False
    """Whether the gateway gets the time, at the end, to delete from the bucket what nobody needs."""

    def without(self, *kinds: str) -> Plan:
        return replace(self, befalls={kind: s for kind, s in self.befalls.items() if kind not in kinds})


MEAN_S = {
    "kill": 5.0,
    "power cut": 5.0,
    "kill amid": 4.0,
    "power cut amid": 4.0,
    "stop": 10.0,
    "cut": 2.0,
    "part": 4.0,
    "clock": 5.0,
    "slow network": 6.0,
    "disk": 6.0,
    "slow disk": 6.0,
    "slow threads": 4.0,
    "cold": 3.0,
}
"""The mean virtual seconds between two faults of each kind, in a run that has the kind."""


BUCKET_MEAN_S = {"lost disk": 6.0, "store away": 8.0, "takeover": 5.0, "move": 6.0}
"""The same for the faults that only a gateway in a bucket survives."""
ENDS: Final = frozenset({"kill", "power cut", "kill amid", "power cut amid", "stop"})
"""The faults that end the gateway."""
FAULTY_STORES: Final = (
    CALM,
    Faults(latency_s=(0.02, 0.1)),
    Faults(
        fails_before=0.05, fails_after=0.05, lands_late=0.02, silent=0.01, conflicts=0.02, stale_listing=0.2
    ),
    Faults(slow=0.05, slow_latency_s=10.0, fails_after=0.1, conflicts=0.1),
)


def bucket_plan_of(seed: int) -> Plan:
    """Draw a plan in which records are durable in a bucket: disks are lost, gateways taken for dead, and the
    store fails.
    """
    profile = BUCKET_PROFILES.get(bucket_profile_name_of(seed))
    if profile is not None:
        return _in_bucket(seed, plan_of(seed, profile), profile.befalls or {})
    chance, plan = Random(f"bucket befalls {seed}"), plan_of(seed)
    # a start takes longer than on a local disk, and the gateway must do some work before it ends
    befalls = {
        kind: mean_s * (3.0 if kind in ENDS else 1.0)
        for kind, mean_s in plan.befalls.items()
        if kind != "disk"
    }
    befalls |= {
        kind: mean_s * chance.uniform(0.4, 2.0)
        for kind, mean_s in BUCKET_MEAN_S.items()
        if chance.random() < 0.5
    }
    return _in_bucket(seed, replace(plan, duration_s=max(plan.duration_s, 10.0)), befalls)


def share_plan_of(seed: int) -> Plan:
    """Draw a plan with share groups, which are ready before the first fault."""
    return replace(plan_of(seed, SHARE_PROFILES[share_profile_name_of(seed)]), faults_need_topics=True)


def _in_bucket(seed: int, plan: Plan, befalls: Mapping[str, float]) -> Plan:
    chance = Random(f"bucket plan {seed}")
    settings = {
        "seqgate.cluster": "s3://bucket/prefix",
        # The gateway that takes over is the same node, on another disk: it waits for the lease of the one
        # before.
        "node.id": 1,
        "seqgate.cluster.lease.ms": LEASE_MS,
        "seqgate.cluster.puts.per.second": chance.choice((5, 50, 1_000)),
        "seqgate.cluster.puts.in.flight": chance.choice((1, 2, 4)),
        "log.flush.interval.messages": chance.choice((1, PAGE_CACHE)),
        "seqgate.cluster.upload.interval.ms": Random(f"uploads plan {seed}").choice(
            (100, 500, 2_000, 2_000 if plan.profile.zombies else RARE_UPLOADS_MS)
        ),
        "seqgate.cluster.cache.bytes": Random(f"cache plan {seed}").choice((0, 1 << 14, -1)),
        "seqgate.cluster.orphan.age.ms": Random(f"sweeps plan {seed}").choice((1_000, 5_000, RARE_SWEEPS_MS)),
        "seqgate.cluster.metadata.snapshot.changes": Random(f"snapshots plan {seed}").choice((2, 5, 1_000)),
        "seqgate.cluster.metadata.snapshot.age.ms": 1_000,
    }
    settings = {name: value for name, value in settings.items() if name not in plan.profile.settings}
    store = CALM if plan.profile.zombies else chance.choice(FAULTY_STORES)
    if store.slow:
        # Clients that give up within a second would ask for blocks of one id sooner than the store takes one.
        settings["seqgate.producer.id.block.size"] = 1_000
    return replace(
        plan,
        befalls=dict(befalls),
        settings=(*plan.settings, *(f"{name}={value}" for name, value in settings.items())),
        store=store,
        rests=settings.get("seqgate.cluster.upload.interval.ms") != RARE_UPLOADS_MS
        and settings.get("seqgate.cluster.orphan.age.ms") != RARE_SWEEPS_MS,
        faults_need_topics=Random(f"begin of {seed}").random() < 0.9,
    )


def plan_of(seed: int, profile: Profile | None = None) -> Plan:
    """Draw some of the faults, and some of the settings that change the outcome, from the seed, and the
    profile if none is given.
    """
    chance, profile = Random(f"plan {seed}"), profile or profile_of(seed)
    befalls = {
        kind: mean_s * chance.uniform(0.4, 2.0) for kind, mean_s in MEAN_S.items() if chance.random() < 0.6
    }
    if profile.befalls is not None:
        befalls = dict(profile.befalls)
    durable = chance.random() < 0.8
    if profile.is_durable is not None:
        durable = profile.is_durable
    if not durable:
        # records acknowledged from the page cache may be lost by a power cut or a failing disk
        for kind in ("power cut", "power cut amid", "disk"):
            befalls.pop(kind, None)
    duration_s = chance.choice((4.0, 8.0, 8.0, 15.0, 30.0))
    settings = _settings(chance, durable=durable) | _settings_of_names(Random(f"names plan {seed}"))
    settings["seqgate.recompression.threads"] = Random(f"codecs plan {seed}").choice((1, 2, 5))
    if profile.durations_s is not None:
        duration_s = chance.choice(profile.durations_s)
    return Plan(
        duration_s=duration_s,
        settings=tuple(f"{name}={value}" for name, value in {**settings, **profile.settings}.items()),
        befalls=befalls,
        one_byte_portions=chance.choice((0.0, 0.0, 0.02, 0.3)),
        cold_reads=chance.random() < 0.5,
        profile=profile,
    )


def _settings(chance: Random, *, durable: bool) -> dict[str, object]:
    return {
        "listeners": f"PLAINTEXT://{HOST}:{PORT}",
        "seqgate.allow.insecure.listeners": True,
        "log.flush.interval.messages": 1 if durable else PAGE_CACHE,
        "offsets.topic.segment.bytes": chance.choice((2_000, 30_000, 1 << 20)),
        "transaction.state.log.segment.bytes": chance.choice((2_000, 30_000, 1 << 20)),
        # a clock that is set back makes stored records seem to come from the future
        "log.message.timestamp.after.max.ms": LONG_MAX,
        "log.index.interval.bytes": chance.choice((0, 200, 1_000, 4_096)),
        "log.flush.offset.checkpoint.interval.ms": chance.choice((200, 2_000, 60_000)),
        "seqgate.flush.inline.max.ms": chance.choice((0, 1)),
        "offsets.topic.num.partitions": chance.choice((1, 3)),
        "transaction.state.log.num.partitions": chance.choice((1, 3)),
        "share.coordinator.state.topic.num.partitions": 1,
        "group.min.session.timeout.ms": 1_000,
        "group.initial.rebalance.delay.ms": chance.choice((0, 0, 300)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "seqgate.producer.id.block.size": chance.choice((1, 5, 1_000)),
        "log.cleaner.backoff.ms": 500,
        "log.retention.check.interval.ms": 1_000,
        "log.segment.delete.delay.ms": chance.choice((0, 1_000)),
    }


def _settings_of_names(chance: Random) -> dict[str, object]:
    return {
        "seqgate.deduplication.snapshot.records": chance.choice((1, 1, 20, 100_000)),
        "seqgate.deduplication.snapshot.interval.ms": chance.choice((500, 2_000, 60_000)),
        "log.message.deduplication.expiration.ms": chance.choice((-1, 604_800_000)),
    }
