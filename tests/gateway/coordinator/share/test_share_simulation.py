"""Share groups under joins, deaths, delays, lost answers, restarts and clock jumps, each run from a seed.

An offset never has two readers, and a finished offset never returns. Once everyone behaves, all records are
read.
"""

from __future__ import annotations

import pytest

from tests.gateway.coordinator.share.simulation import LIMITS, Simulation
from tests.tiers import in_tiers

SEEDS = range(60)
TROUBLED_MS = 30_000


@pytest.mark.parametrize("seed", in_tiers(SEEDS, all=SEEDS[10:30], nightly=SEEDS[30:]))
def test_everything_is_read_in_the_end(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.join()
    simulation.something()
    simulation.run(TROUBLED_MS)
    simulation.settle()
    alive = {client.name: client for client in simulation.clients if client.is_alive}
    group = simulation.group
    assert group.members.keys() <= alive.keys()
    assert group.members
    for name, member in group.members.items():
        assert member.member_epoch == group.group_epoch
        assert alive[name].assigned == member.current.assigned
    read = frozenset().union(*(member.current.assigned for member in group.members.values()))
    assert read == {
        (topic_id, index) for topic_id, count in simulation.topics.values() for index in range(count)
    }
    for place, batches in simulation.batches.items():
        end_offset = batches[-1][1] + 1
        assert simulation.partition(place).start_offset == end_offset
        for offset in range(end_offset):
            given_up = simulation.deliveries[place, offset] >= LIMITS.delivery_count_limit
            assert (place, offset) in simulation.done or given_up


def test_the_seeds_cover_the_events() -> None:
    simulations = [Simulation(seed) for seed in SEEDS[:10]]
    for simulation in simulations:
        simulation.join()
        simulation.something()
        simulation.run(TROUBLED_MS)
    assert sum(simulation.restarts for simulation in simulations) >= 10
    assert sum(not client.is_alive for simulation in simulations for client in simulation.clients) >= 20
    assert any(max(simulation.deliveries.values()) > 2 for simulation in simulations)
