"""Classic groups under joins, deaths, delays, lost answers, restarts and clock jumps, each run from a seed.

The checks are those of `test_classic_model`. There Hypothesis performs one step after another; here all
clients act at the same time over a slow network.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from tests.gateway.coordinator.group.model_client import Phase
from tests.gateway.coordinator.group.test_classic_model import CLIENTS, PROTOCOLS, ClassicGroupMachine
from tests.tiers import in_tiers

SEEDS = range(20)
TROUBLED_MS = 120_000
CLIENT_NUMBERS = range(len(CLIENTS))


class Simulation:
    """One run of the simulation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = ClassicGroupMachine()
        self.time_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.events = 0
        self.deaths = self.restarts = self.stable = 0

    def later(self, delay_ms: int, what: Callable[[], None]) -> None:
        self.events += 1
        heapq.heappush(self.queue, (self.time_ms + delay_ms, self.events, what))

    def run(self) -> None:
        machine = self.machine
        machine.begin(set())
        for number in CLIENT_NUMBERS:
            self.later(self.random.randint(1, 3_000), lambda number=number: self.live(number))  # type: ignore[misc]
        self.later(5_000, self.something)
        while self.queue[0][0] < TROUBLED_MS:
            at_ms, _, what = heapq.heappop(self.queue)
            if at_ms > self.time_ms:
                machine.time_passes(at_ms - self.time_ms)
                self.time_ms = at_ms
            what()
            self.check()
        machine.teardown()

    def check(self) -> None:
        machine = self.machine
        machine.every_waiter_is_answered_or_kept_once()
        machine.the_group_is_consistent()
        machine.in_stable_all_have_what_the_leader_sent()
        machine.the_deadline_is_when_something_happens()
        machine.replay_gives_the_stored_part()
        self.stable += machine.group is not None and machine.group.state.name == "STABLE"

    def live(self, number: int) -> None:
        """Let a client take its next step, or instead die, leave, start again, or join again without its last
        answer.
        """
        machine, client = self.machine, self.machine.clients[number]
        chance = self.random.random()
        if client.phase is Phase.IDLE:
            machine.join(number, self.random.choice(PROTOCOLS[:2]))
        elif chance < 0.02:
            self.deaths += 1
            machine.die(number)
        elif chance < 0.03:
            machine.leave(number)
        elif chance < 0.05:
            machine.start_again(number)
        elif chance < 0.08 and client.phase is not Phase.MEMBER:
            machine.join(number, client.who.protocols)  # the answer is lost
        else:
            machine.step(number)
            machine.commit(number, self.random.randrange(3))
        slow = self.random.random() < 0.05
        self.later(self.random.randint(1, 8_000 if slow else 900), lambda: self.live(number))

    def something(self) -> None:
        """Do one random thing to the coordinator: delay it, set its clock, let it clean up, or restart it."""
        machine = self.machine
        fate = self.random.random()
        if fate < 0.3:
            machine.timers_are_late(self.random.choice((1, 500, 6_000, 30_000)))
        elif fate < 0.5:
            machine.time_passes(self.random.choice((500, 6_000, 30_000)))
        elif fate < 0.7:
            machine.clean_up()
        elif fate < 0.8:
            self.restarts += 1
            machine.restart()
        self.later(self.random.randint(500, 8_000), self.something)


@pytest.mark.parametrize("seed", in_tiers(SEEDS, all=SEEDS[4:10], nightly=SEEDS[10:]))
def test_the_group_comes_to_rest_in_the_end(seed: int) -> None:
    Simulation(seed).run()


@pytest.mark.tier("all")
def test_the_seeds_cover_the_events() -> None:
    simulations = [Simulation(seed) for seed in SEEDS[:8]]
    for simulation in simulations:
        simulation.run()
    assert sum(simulation.deaths for simulation in simulations) >= 20
    assert sum(simulation.restarts for simulation in simulations) >= 8
    assert all(simulation.stable for simulation in simulations)
