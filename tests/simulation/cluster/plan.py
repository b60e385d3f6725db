"""The plan of a run with several gateways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.cluster.profiles import ClusterProfile, cluster_profile_of
from tests.simulation.plan import FAULTY_STORES, Plan, plan_of
from tests.support.simulated_objects import CALM

PORT: Final = 9092
MEAN_S: Final = {
    "kill": 6.0,
    "power cut": 8.0,
    "kill amid": 8.0,
    "lost disk": 10.0,
    "stop": 8.0,
    "rolling restart": 12.0,
    "pause": 6.0,
    "apart": 5.0,
    "one way": 6.0,
    "isolated": 8.0,
    "cut off": 8.0,
    "slow store": 8.0,
    "store away": 12.0,
    "slow pair": 6.0,
    "slow network": 8.0,
    "slow threads": 8.0,
    "cut": 4.0,
    "clock": 6.0,
    "drift": 6.0,
    "move": 4.0,
    "join": 8.0,
    "leave": 10.0,
}
"""The mean virtual seconds between two faults of each kind, in a run that has the kind."""
LEASES_MS: Final = (1_500, 3_000, 6_000)


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

    def settings_of(self, number: int) -> tuple[str, ...]:
        """Return the settings of one gateway."""
        own = (f"listeners=PLAINTEXT://{host_of(number)}:{PORT}",)
        return (*own, f"node.id={number + 1}") if self.node_ids else own


def cluster_plan_of(seed: int) -> ClusterPlan:
    """Draw the plan of a seed."""
    profile = cluster_profile_of(seed)
    chance = Random(f"cluster plan {seed}")
    gateways = chance.choice(profile.gateways)
    shared = plan_of(seed, profile.profile)
    settings = dict(setting.split("=", 1) for setting in shared.settings)
    del settings["listeners"]
    settings |= _cluster_settings(chance, profile)
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
        duration_s=max(shared.duration_s, 10.0),
        settings=tuple(f"{name}={value}" for name, value in settings.items()),
        store=CALM if chance.random() < profile.calm_store else chance.choice(FAULTY_STORES),
    )
    return ClusterPlan(shared, gateways, profile.spare, node_ids=chance.random() < 0.5)


def _cluster_settings(chance: Random, profile: ClusterProfile) -> dict[str, object]:
    lease_ms = chance.choice(LEASES_MS)
    drawn = {
        "seqgate.cluster": "s3://bucket/prefix",
        "seqgate.cluster.lease.ms": lease_ms,
        "seqgate.cluster.heartbeat.ms": lease_ms // 3,
        "seqgate.cluster.balance.delay.ms": chance.choice((0, 500, 5_000)),
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
    return drawn | {name: chance.choice(values) for name, values in profile.settings.items()}
