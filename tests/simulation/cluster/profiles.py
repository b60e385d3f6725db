"""What a run of a cluster concentrates on. The ordinary one has every kind of fault, drawn from the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulation.clients.population import Population
from tests.simulation.clients.traits import Traits
from tests.simulation.profiles import ORDINARY, SHARE_PROFILES, Profile

ORDINARY_SHARE: Final = 0.4
_BUSY: Final = Traits(producer_pauses_s=(0.05, 0.1), transaction_pauses_s=(0.05, 0.2))
EVERYBODY: Final = (
    Population(idempotent_producers=2, consumers=2, hasty_producers=1, traits=_BUSY),
    Population(idempotent_producers=1, transactional_ids=2, consumers=2, traits=_BUSY),
    Population(idempotent_producers=1, consumers=1, groups=2, traits=_BUSY),
    Population(consumers=1, named_applications=2, administrators=1, traits=_BUSY),
)


@dataclass(frozen=True)
class ClusterProfile:
    """A profile. `befalls` has the mean seconds between two faults of each kind; None leaves the choice to
    the seed.
    """

    befalls: Mapping[str, float] | None = None
    profile: Profile = ORDINARY
    gateways: tuple[int, ...] = (2, 3, 3)
    spare: int = 0
    durations_s: tuple[float, ...] = (15.0, 25.0, 40.0)
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Choices for settings of the gateways."""
    calm_store: float = 0.5
    """The share of runs whose store has no faults of its own."""


_SHORT: Final = Profile(populations=EVERYBODY, topics=(1, 2), refusals=0.5)

PROFILES: Final[Mapping[str, ClusterProfile]] = {
    "moves": ClusterProfile({"move": 1.0, "cut": 4.0, "slow network": 5.0}, _SHORT, spare=0),
    "failovers": ClusterProfile(
        {"kill": 8.0, "power cut": 15.0, "lost disk": 15.0, "kill amid": 15.0}, _SHORT, gateways=(3,)
    ),
    "pauses": ClusterProfile({"pause": 3.0, "drift": 4.0, "clock": 6.0}, _SHORT),
    "partitions": ClusterProfile(
        {"apart": 3.0, "one way": 4.0, "isolated": 5.0, "cut off": 5.0, "cut": 4.0, "slow pair": 4.0}, _SHORT
    ),
    "store": ClusterProfile(
        {"store away": 12.0, "slow store": 8.0, "cut off": 10.0, "kill": 15.0}, _SHORT, calm_store=0.0
    ),
    "rolling": ClusterProfile({"rolling restart": 8.0, "move": 4.0}, _SHORT, gateways=(3,)),
    "joins": ClusterProfile({"join": 4.0, "leave": 8.0, "kill": 15.0}, _SHORT, gateways=(1, 2), spare=2),
}

SHARES: Final = ClusterProfile(
    {"move": 2.0, "kill": 8.0, "stop": 10.0, "apart": 6.0, "pause": 10.0, "cut": 6.0},
    SHARE_PROFILES["calm"],
    durations_s=(10.0, 15.0),
)
"""Runs with share groups. Clocks neither jump nor drift: delays are checked to the millisecond."""


def cluster_profile_name_of(seed: int) -> str:
    """Draw the name of a seed's profile; the empty name is the ordinary run's."""
    chance = Random(f"cluster profile {seed}")
    return "" if chance.random() < ORDINARY_SHARE else chance.choice(list(PROFILES))


def cluster_profile_of(seed: int) -> ClusterProfile:
    return PROFILES.get(cluster_profile_name_of(seed), ClusterProfile(spare=1))
