"""Gateways with fixed leaders keep every promise while they are killed, stand still, and are cut off from
each other and from clients.
"""

from __future__ import annotations

from random import Random

import pytest

from seqgate.gateway.backends import backend
from tests.simulation.clients.population import Population
from tests.simulation.clients.traits import Traits
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster.fixed_leaders import FixedLeaders
from tests.simulation.cluster.plan import MEAN_S, ClusterPlan
from tests.simulation.cluster.simulation import ClusterSimulation
from tests.simulation.plan import Plan, plan_of
from tests.simulation.profiles import Profile
from tests.simulation.running import Outcome

POPULATION = Population(
    idempotent_producers=2,
    consumers=2,
    groups=1,
    hasty_producers=1,
    traits=Traits(producer_pauses_s=(0.05, 0.1), transforming_groups=0.0),
)
PROFILE = Profile(
    durations_s=(8.0,), befalls={}, is_durable=True, populations=(POPULATION,), topics=(1, 2), compacted=0.0
)
KINDS = ("kill", "power cut", "stop", "pause", "apart", "one way", "isolated", "slow pair", "cut", "drift")


@pytest.fixture(autouse=True)
def brokers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateways keep the brokers of their metadata: on a disk, a start takes them for workers that died
    before they had their files, and removes them.
    """
    monkeypatch.setattr(backend, "unregistered", lambda _: ())


def shared(seed: int) -> Plan:
    plan = plan_of(seed, PROFILE)
    settings = tuple(setting for setting in plan.settings if not setting.startswith("listeners="))
    chance = Random(f"fixed leaders {seed}")
    befalls = {kind: MEAN_S[kind] * chance.uniform(0.2, 0.8) for kind in KINDS if chance.random() < 0.6}
    return Plan(plan.duration_s, settings, befalls, plan.one_byte_portions, profile=PROFILE)


def run(seed: int) -> Outcome:
    workload = Workload.from_seed(seed, PROFILE)
    plan = ClusterPlan(shared(seed), gateways=3)
    return ClusterSimulation(seed, plan, workload, FixedLeaders(workload.topics).prepare).run()


@pytest.mark.parametrize("seed", range(6))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = run(seed)
    assert outcome.breaches == [], outcome.told()
    assert outcome.counts["records checked"] > 50
    assert outcome.counts["starts"] >= 6


def test_a_seed_is_replayed_exactly() -> None:
    assert run(1).fingerprint == run(1).fingerprint
