"""The plan of a run with several gateways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from seqgate.gateway.config.cluster import SPREADING_SELECTOR
from tests.simulation.cluster.profiles import SHARES, ClusterProfile, cluster_profile_of
from tests.simulation.plan import FAULTY_STORES, Plan, plan_of
from tests.support.simulated_objects import CALM

PORT: Final = 9092
MEAN_S: Final = {
    "kill": 12.0,
    "power cut": 15.0,
    "kill amid": 15.0,
    "lost disk": 15.0,
    "stop": 12.0,
    "rolling restart": 15.0,
    "pause": 8.0,
    "apart": 5.0,
    "one way": 8.0,
    "isolated": 10.0,
    "cut off": 12.0,
    "slow store": 12.0,
    "store away": 20.0,
    "slow pair": 8.0,
    "slow network": 10.0,
    "slow threads": 10.0,
    "cut": 6.0,
    "clock": 8.0,
    "drift": 8.0,
    "move": 4.0,
    "join": 10.0,
    "leave": 15.0,
}
"""The mean virtual seconds between two faults of each kind, in a run that has the kind."""
LEASES_MS: Final = (1_500, 3_000, 6_000)
FIRST_WITH_READS_ELSEWHERE: Final = 1_000


def host_of(number: int) -> str:
    """Return the host of a gateway, which is the name of its process, too."""
    return f"gateway-{number + 1}"


@dataclass(frozen=True)
class ClusterPlan:
    """A plan. `shared` is that of all gateways; `spare` ones do not run at first, and may join."""

    shared: Plan
    gateways: int
    spare: int = 0
    node_ids: bool = True
    """Whether each gateway is told its node id."""

    def __str__(self) -> str:
        shared = self.shared
        spare = f" and {self.spare} spare" if self.spare else ""
        return (
            f"{self.gateways} gateways{spare}, {shared.duration_s:g} s; "
            f"befalls {', '.join(f'{kind} {mean_s:.1f} s' for kind, mean_s in shared.befalls.items())}; "
            f"{shared.store}; settings {', '.join(shared.settings)}"
        )

    @property
    def reads_elsewhere(self) -> bool:
        """Whether gateways serve uploaded records of partitions that others lead."""
        return any(setting.startswith("replica.selector.class=") for setting in self.shared.settings)

    @property
    def store_timeout_s(self) -> float:
        """The time after which a gateway gives a call to the store up."""
        settings = dict(setting.split("=", 1) for setting in self.shared.settings)
        return int(settings.get("seqgate.cluster.request.timeout.ms", "30000")) / 1000

    def settings_of(self, number: int) -> tuple[str, ...]:
        """Return the settings of one gateway."""
        own = (f"listeners=PLAINTEXT://{host_of(number)}:{PORT}",)
        return (*own, f"node.id={number + 1}") if self.node_ids else own


def share_cluster_plan_of(seed: int) -> ClusterPlan:
    """Draw the plan of a seed with share groups."""
    return cluster_plan_of(seed, SHARES)


def cluster_plan_of(seed: int, profile: ClusterProfile | None = None) -> ClusterPlan:
    """Draw the plan of a seed, and the profile if none is given."""
    profile = profile or cluster_profile_of(seed)
    chance = Random(f"cluster plan {seed}")
    gateways = chance.choice(profile.gateways)
    shared = plan_of(seed, profile.profile)
    settings = dict(setting.split("=", 1) for setting in shared.settings)
    del settings["listeners"]
    settings |= _cluster_settings(seed, chance, profile)
    if _reads_elsewhere(seed):
        settings["replica.selector.class"] = SPREADING_SELECTOR
        settings["seqgate.cluster.upload.interval.ms"] = 100 + seed % 7 * 200
    befalls = profile.befalls
    if befalls is None:
        befalls = {
            kind: mean_s * chance.uniform(0.5, 2.0)
            for kind, mean_s in MEAN_S.items()
            if chance.random() < 0.35
        }
    shared = replace(
        shared,
        befalls=dict(befalls),
        duration_s=chance.choice(profile.durations_s),
        settings=tuple(f"{name}={value}" for name, value in settings.items()),
        store=CALM if chance.random() < profile.calm_store else chance.choice(FAULTY_STORES),
    )
    return ClusterPlan(shared, gateways, profile.spare, node_ids=chance.random() < 0.5)


def _cluster_settings(seed: int, chance: Random, profile: ClusterProfile) -> dict[str, object]:
    lease_ms = chance.choice(LEASES_MS)
    drawn = {
        "seqgate.cluster": "s3://bucket/prefix",
        "seqgate.cluster.lease.ms": lease_ms,
        "seqgate.cluster.heartbeat.ms": lease_ms // 3,
        "seqgate.cluster.balance.delay.ms": chance.choice((0, 500, 5_000)),
        "seqgate.cluster.request.timeout.ms": chance.choice((1_000, 3_000, 10_000)),
        "seqgate.cluster.puts.per.second": chance.choice((50, 1_000)),
        "seqgate.cluster.puts.in.flight": chance.choice((1, 2, 4)),
        "seqgate.cluster.upload.interval.ms": chance.choice((500, 2_000, 600_000)),
        "seqgate.cluster.cache.bytes": chance.choice((0, 1 << 14, -1)),
        "seqgate.cluster.orphan.age.ms": chance.choice((1_000, 5_000, 86_400_000)),
        # Clients that give up within a second would ask for blocks of one id sooner than the store takes one.
        "seqgate.producer.id.block.size": 1_000,
        "offsets.topic.num.partitions": chance.choice((1, 3)),
        "transaction.state.log.num.partitions": chance.choice((1, 3)),
    }
    of_snapshots = Random(f"snapshots plan {seed}")
    drawn["seqgate.cluster.metadata.snapshot.changes"] = of_snapshots.choice((2, 3, 8))
    drawn["seqgate.cluster.metadata.snapshot.age.ms"] = of_snapshots.choice((1_000, 3_000, 3_600_000))
    return drawn | {name: chance.choice(values) for name, values in profile.settings.items()}


def _reads_elsewhere(seed: int) -> bool:
    """Draw whether consumers read from other gateways than leaders. The kept seeds of planted faults have
    runs without that.
    """
    return seed >= FIRST_WITH_READS_ELSEWHERE and Random(f"reads elsewhere {seed}").random() < 0.5
