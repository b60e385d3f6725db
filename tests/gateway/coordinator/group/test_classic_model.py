"""Clients join, sync, retry, leave, die and come late; the rules of a classic group must hold at every step."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group import classic_protocol
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.events import Effects, SyncReply
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from tests.gateway.coordinator.group.model_client import Client, Phase
from tests.gateway.coordinator.group.scene import DELAY_MS, GROUP, LIMITS, Scene, Who

SESSION_MS: Final = 6_000
STATIC_SESSION_MS: Final = 25_000
REBALANCE_MS: Final = 9_000
MAX_SIZE: Final = 4
SETTLED_AFTER_MS: Final = 5 * (REBALANCE_MS + STATIC_SESSION_MS + DELAY_MS)
PROTOCOLS: Final = (
    (("a", b"1"), ("b", b"1")),
    (("b", b"2"), ("a", b"2")),
    (("b", b"3"),),
    (("a", b"4"), ("a", b"5"), ("b", b"4")),
    (("c", b"6"),),
)
PLAIN: Final = Who(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, protocols=PROTOCOLS[0])
CLIENTS: Final = (
    PLAIN,
    replace(PLAIN, api_version=4),
    replace(PLAIN, api_version=4, rebalance_timeout_ms=4_000),
    replace(PLAIN, group_instance_id="i", session_timeout_ms=STATIC_SESSION_MS, api_version=9),
    replace(PLAIN, group_instance_id="j", session_timeout_ms=STATIC_SESSION_MS, api_version=8),
    replace(PLAIN, group_instance_id="i", protocols=PROTOCOLS[1], api_version=9),
)
NUMBERS: Final = st.integers(0, len(CLIENTS) - 1)
TIMES_MS: Final = st.sampled_from([1, 500, DELAY_MS, 4_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS, 30_000])


def fingerprint(group: ClassicGroup) -> tuple[object, ...]:
    """Return the whole state of a group except the remaining time of its sessions."""
    waiting = tuple((m.member_id, m.awaiting_join, m.awaiting_sync) for m in group.members.values())
    return (
        group.state,
        group.metadata(),
        waiting,
        dict(group.pending_members),
        set(group.pending_sync),
        group.join_deadline_ms,
        group.sync_deadline_ms,
    )


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(msgspec.structs.replace(LIMITS, max_size=MAX_SIZE))
        self.clients = [Client(self.scene, who) for who in CLIENTS]
        self.shadow = GroupShard(self.scene.shard.limits, 100)
        self.replayed = 0
        self.answers_seen = 0
        self.last_generation_id = 0
        self.tokens = 0
        self.token = 0
        """The token in the leader's current assignment."""
        self.places: dict[int, str] = {}
        """The client behind each waiter."""
        self.lost: set[int] = set()
        """The waiters whose coordinator was stopped before it answered."""

    @property
    def group(self) -> ClassicGroup | None:
        return self.scene.shard.groups.get(GROUP)

    # --- events that may happen

    @initialize(numbers=st.sets(NUMBERS))
    def begin(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            self.clients[number].join()

    @rule(rounds=st.integers(1, 20))
    def go_on(self, rounds: int) -> None:
        """Let time pass in small steps, in which every client acts."""
        for _ in range(rounds):
            self._one_round()

    def _one_round(self) -> None:
        for client in self.clients:
            while self._step(client):
                pass
        self.scene.advance(SESSION_MS // 4)

    @rule(number=NUMBERS, protocols=st.sampled_from((*PROTOCOLS[:1] * 5, *PROTOCOLS)))
    def join(self, number: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Join, repeat a join, or join again with other protocols."""
        client = self.clients[number]
        client.who = replace(client.who, protocols=protocols)
        client.join()

    @rule(number=NUMBERS)
    def step(self, number: int) -> None:
        self._step(self.clients[number])

    def _step(self, client: Client) -> bool:
        self.tokens += 1
        was_waiting = client.waiter
        before = None if self.group is None else self.group.state
        has_gone_on = client.step(self.tokens)
        if client.phase is Phase.SYNCING and client.waiter != was_waiting:
            self.places[client.waiter] = client.place
            after = None if self.group is None else self.group.state
            if before is GroupState.COMPLETING_REBALANCE and after is GroupState.STABLE:
                self.token = self.tokens
        self._read_answers()
        return has_gone_on

    @rule()
    def all_step(self) -> None:
        for client in self.clients:
            self._step(client)

    @rule(numbers=st.sets(NUMBERS, min_size=1), rounds=st.integers(1, 12))
    def only_send_heartbeats(self, numbers: set[int], rounds: int) -> None:
        """Let members send only heartbeats, without joining or syncing; the others do nothing."""
        for _ in range(rounds):
            for number in numbers:
                if self.clients[number].reply is not None:
                    self.clients[number].heartbeat()
            self.scene.advance(SESSION_MS // 4)
            self._read_answers()

    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        self.clients[number].forget()

    @rule(number=NUMBERS)
    def start_again(self, number: int) -> None:
        self.clients[number].forget()
        self.clients[number].join()

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.scene.leave((client.who.member_id, client.who.group_instance_id))
        client.forget()

    @rule(numbers=st.lists(NUMBERS, min_size=2, max_size=3))
    def removed_by_an_administrator(self, numbers: list[int]) -> None:
        self.scene.leave(*((self.clients[number].who.member_id, None) for number in numbers))

    @rule(number=NUMBERS, partition=st.integers(0, 2))
    def commit(self, number: int, partition: int) -> None:
        client = self.clients[number]
        generation_id = -1 if client.reply is None else client.reply.generation_id
        committer = Committer(GROUP, generation_id, client.who.member_id, client.who.group_instance_id)
        if self.scene.shard.commits.check(committer, [], self.scene.now_ms) is ErrorCode.none:
            value = CommittedOffset(number, -1, "", self.scene.now_ms)
            self.scene.commit(OffsetCommitRecord(GROUP, "t", partition, value))

    @rule(time_ms=TIMES_MS)
    def time_passes(self, time_ms: int) -> None:
        self.scene.advance(time_ms)

    @rule(time_ms=TIMES_MS)
    def timers_are_late(self, time_ms: int) -> None:
        self.scene.now_ms += time_ms

    @rule()
    def expire(self) -> None:
        self.scene.expire()
        left_ms = self.scene.next_in_ms()
        assert left_ms is None or left_ms > 0, "a deadline that has passed would make the timer spin"

    @rule()
    def clean_up(self) -> None:
        effects = self.scene.effects()
        self.scene.shard.clean_up(20_000, effects)
        self.scene.take(effects)

    @rule()
    def restart(self) -> None:
        """Restart the coordinator: connections break, and everything that was not stored is lost."""
        self.lost |= set(range(1, self.scene.asked + 1)) - self.scene.answers.keys()
        self.scene.shard = self.scene.replayed()
        self.last_generation_id = 0
        for client in self.clients:
            if client.phase is not Phase.IDLE and client.phase is not Phase.MEMBER:
                client.join()

    # --- properties that must hold

    def _read_answers(self) -> None:
        """Check that each answered assignment is the leader's, for that member."""
        answers = list(self.scene.answers.items())
        for waiter, reply in answers[self.answers_seen :]:
            if isinstance(reply, SyncReply) and reply.error_code is ErrorCode.none:
                assert reply.assignment == f"{self.token}/{self.places[waiter]}".encode()
        self.answers_seen = len(answers)

    @invariant()
    def every_waiter_is_answered_or_kept_once(self) -> None:
        members = () if self.group is None else self.group.members.values()
        kept = Counter(w for member in members for w in (member.awaiting_join, member.awaiting_sync) if w)
        open_waiters = set(range(1, self.scene.asked + 1)) - self.scene.answers.keys() - self.lost
        assert kept == Counter(open_waiters)

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group
        if group is None:
            self.last_generation_id = 0
            return
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.generation_id >= self.last_generation_id
        self.last_generation_id = group.generation_id
        assert group.static_members == {
            m.group_instance_id: m.member_id
            for m in group.members.values()
            if m.group_instance_id is not None
        }
        assert all(member_id == member.member_id for member_id, member in group.members.items())
        assert not group.members.keys() & group.pending_members.keys()
        assert group.pending_sync <= group.members.keys()
        for member in group.members.values():
            assert member.session_deadline_ms != NEVER
            assert member.awaiting_join is None or group.state is GroupState.PREPARING_REBALANCE
            assert member.awaiting_sync is None or group.state is GroupState.COMPLETING_REBALANCE
        self._state_is_consistent(group)

    def _state_is_consistent(self, group: ClassicGroup) -> None:
        is_preparing = group.state is GroupState.PREPARING_REBALANCE
        assert (group.join_deadline_ms != NEVER) == is_preparing
        if group.state is GroupState.EMPTY:
            assert not group.members
        elif not is_preparing:
            assert group.members
            assert group.protocol_name is not None
            assert all(dict(m.protocols).get(group.protocol_name) for m in group.members.values())
        if group.pending_sync:
            assert group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
            assert group.sync_deadline_ms != NEVER
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert group.leader in group.pending_sync
            assert len(group.members) <= MAX_SIZE + len(group.static_members)

    @invariant()
    def in_stable_all_have_what_the_leader_sent(self) -> None:
        if self.group is not None and self.group.state is GroupState.STABLE:
            for member in self.group.members.values():
                place = member.group_instance_id or member.member_id
                assert member.assignment == f"{self.token}/{place}".encode()

    @invariant()
    def the_deadline_is_when_something_happens(self) -> None:
        group = self.group
        if group is None:
            return
        deadline_ms = classic_protocol.next_deadline_ms(group)
        if deadline_ms == NEVER:
            assert group.state is GroupState.EMPTY
            return
        for at_ms, is_due in ((deadline_ms - 1, False), (deadline_ms, True)):
            tried, effects = copy.deepcopy(group), Effects(at_ms)
            classic_protocol.expire(tried, self.scene.shard.limits, effects)
            has_acted = bool(effects.records or effects.replies) or fingerprint(tried) != fingerprint(group)
            assert has_acted == is_due

    @invariant()
    def replay_gives_the_stored_part(self) -> None:
        for record in self.scene.records[self.replayed :]:
            self.shadow.replay(record, self.scene.now_ms)
        self.replayed = len(self.scene.records)
        assert self.shadow.offsets.of(GROUP) == self.scene.shard.offsets.of(GROUP)
        group = self.group
        if group is None or not group.is_stored or group.is_simple or not group.generation_id:
            return
        replayed = self.shadow.groups[GROUP]
        assert (replayed.state, replayed.metadata()) == (group.state, group.metadata())

    # --- the state that the group must reach at the end

    def teardown(self) -> None:
        """Let all remaining clients behave from now on: the group must become stable with all of them."""
        end_ms = self.scene.now_ms + SETTLED_AFTER_MS
        while self.scene.now_ms < end_ms:
            self._one_round()
        taking_part = [client for client in self.clients if client.phase is not Phase.IDLE]
        assert all(client.phase is Phase.MEMBER for client in taking_part)
        members = {} if self.group is None else self.group.members
        assert members.keys() == {client.who.member_id for client in taking_part}
        if self.group is not None:
            assert self.group.state is (GroupState.STABLE if taking_part else GroupState.EMPTY)
        self.in_stable_all_have_what_the_leader_sent()
        self.every_waiter_is_answered_or_kept_once()


ClassicGroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestClassicGroup = pytest.mark.tier("all")(ClassicGroupMachine.TestCase)
