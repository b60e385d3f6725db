"""Members join, lose answers, fall silent, leave and return, while topics change and the gateway restarts.

A partition never has two owners, neither in the coordinator's state nor among the members. Once everyone
behaves, the group becomes stable and all partitions are assigned.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits
from seqgate.gateway.coordinator.group.epoch_group import EMPTY, STABLE, HeartbeatRefused
from seqgate.gateway.coordinator.places import Place
from tests.gateway.coordinator.group.consumer_scene import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    ConsumerScene,
    snapshot,
)

MAX_SIZE = 5
TOPICS = ("t", "u")
names = st.sampled_from([("t",), ("u",), ("t", "u"), ("u", "missing")])


class ConsumerGroupMachine(RuleBasedStateMachine):
    clients: Bundle[Client] = Bundle("clients")

    @initialize(partitions=st.integers(0, 5))
    def begin(self, partitions: int) -> None:
        limits = ConsumerLimits(session_timeout_ms=SESSION_MS, max_size=MAX_SIZE)
        self.scene = ConsumerScene(limits, t=partitions)
        self.alive: list[Client] = []
        self.ids = 0
        self.epochs = (0, 0)

    def _fresh_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}"

    def _heard(self, client: Client, **more: Any) -> None:
        """Send a heartbeat; if it is refused, the client starts over."""
        with contextlib.suppress(HeartbeatRefused):
            client.beat(**more)

    # --- members

    @rule(target=clients, subscribed=names, instance=st.none() | st.sampled_from("ij"))
    def joins(self, subscribed: tuple[str, ...], instance: str | None) -> Client:
        client = Client(self.scene, self._fresh_id(), subscribed, instance)
        self._heard(client)
        self.alive.append(client)
        return client

    @rule(client=clients, lost=st.booleans(), keeps=st.booleans())
    def beats(self, client: Client, lost: bool, keeps: bool) -> None:
        self._heard(client, answer_is_lost=lost, keeps_for_now=keeps)

    @rule(client=clients)
    def tells_nothing(self, client: Client) -> None:
        if client.member_epoch:
            self._heard(client, owned=None)

    @rule(client=clients)
    def catches_up(self, client: Client) -> None:
        client.catch_up()

    @rule(client=clients)
    def begins_anew(self, client: Client) -> None:
        """Start over as a client that was fenced, or that believes it was fenced."""
        client.give_up()

    @rule(client=clients, subscribed=names)
    def wants_other_topics(self, client: Client, subscribed: tuple[str, ...]) -> None:
        client.names = subscribed
        if client.member_epoch:
            self._heard(client, subscribed_names=subscribed)

    @rule(client=consumes(clients), for_a_while=st.booleans())
    def leaves(self, client: Client, for_a_while: bool) -> None:
        static = for_a_while and client.instance_id is not None
        with contextlib.suppress(HeartbeatRefused):
            client.leave(-2 if static else -1)
        client.give_up()
        self.alive.remove(client)

    @rule(target=clients, client=consumes(clients))
    def is_started_again(self, client: Client) -> Client:
        """Let a static member leave temporarily and return as another process."""
        with contextlib.suppress(HeartbeatRefused):
            client.leave(-1 if client.instance_id is None else -2)
        self.alive.remove(client)
        again = Client(self.scene, self._fresh_id(), client.names, client.instance_id)
        self._heard(again)
        self.alive.append(again)
        return again

    @rule(client=consumes(clients))
    def dies(self, client: Client) -> None:
        self.alive.remove(client)

    # --- their surroundings

    @rule(time_ms=st.sampled_from([1, 3_000, REBALANCE_MS, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, time_ms: int) -> None:
        self.scene.advance(time_ms)

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def a_topic_grows(self, name: str, more: int) -> None:
        if name in self.scene.cluster.topics:
            self.scene.grow(name, self.scene.cluster.topics[name][1] + more)
        else:
            self.scene.cluster.create(name, more)
            self.scene.topics_changed()

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_goes(self, name: str) -> None:
        self.scene.cluster.topics.pop(name, None)
        self.scene.topics_changed()

    @precondition(lambda self: self.scene.records)
    @rule()
    def the_node_restarts(self) -> None:
        before = snapshot(self.scene.groups)
        self.scene.restart()
        assert snapshot(self.scene.groups) == before

    # --- properties that must hold

    @invariant()
    def nothing_has_two_owners(self) -> None:
        group = self.scene.groups.groups.get(GROUP)
        if group is None:
            return
        held = [place for member in group.members.values() for place in member.holds]
        assert len(held) == len(set(held))
        assert len(group.members) <= MAX_SIZE
        owned: set[Place] = set()
        for client in self.alive:
            if client.member_id in group.members:
                assert client.owned <= group.members[client.member_id].holds or client.given is not None
                assert not owned & client.owned
                owned |= client.owned

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.scene.groups.groups.get(GROUP)
        if group is None:
            return
        epochs = group.group_epoch, group.assignment_epoch
        assert epochs[0] >= self.epochs[0]
        assert epochs[1] >= self.epochs[1]
        assert epochs[0] >= epochs[1]
        self.epochs = epochs
        for member in group.members.values():
            assert member.member_epoch <= group.assignment_epoch
        assert set(group.targets) <= set(group.members)
        static = {
            member.value.instance_id: member_id
            for member_id, member in group.members.items()
            if member.value.instance_id is not None
        }
        assert group.static_members == static

    def teardown(self) -> None:
        """End all simulated failures: dead members stay dead, the others behave."""
        if not hasattr(self, "scene"):
            return
        for _ in range(4):
            self.scene.advance(SESSION_MS // 3)
            for _ in range(2):
                for client in self.alive:
                    client.catch_up()
                    self._heard(client)
        group = self.scene.groups.groups.get(GROUP)
        if group is None:
            return
        members = [client for client in self.alive if client.member_id in group.members]
        if not members:
            assert group.state_text == EMPTY
            return
        for _ in range(2 * len(members) + 2):
            for client in members:
                client.beat()
        assert group.state_text == STABLE
        wanted = {name for client in members for name in client.names} & self.scene.cluster.topics.keys()
        owned = [place for client in members for place in client.owned]
        assert len(owned) == len(set(owned))
        assert set(owned) == (self.scene.cluster.places(*wanted) if wanted else set())
        assert snapshot(self.scene.replayed()) == snapshot(self.scene.groups)


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=150, stateful_step_count=40)
