"""Requests to the share coordinator: leaders and beginnings fence each other, and no state that nobody can
have is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.share.records import (
    NOT_BEGUN,
    READ_TOO_EARLY,
    Refusal,
    SharePartitionKey,
    ShareState,
    ShareStates,
    Summary,
    Write,
    decode,
    encode,
    stored,
)
from seqgate.gateway.coordinator.share.share_partition import DeliveryState, ShareLimits, StateBatch

KEY = SharePartitionKey("g", uuid.UUID(int=7), 0)
ACKNOWLEDGED, AVAILABLE = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE
FENCED_LEADER, FENCED_STATE = ErrorCode.fenced_leader_epoch, ErrorCode.fenced_state_epoch


class Coordinator:
    """A coordinator whose every change is also replayed into a second state, as after a restart."""

    def __init__(self) -> None:
        self.states = ShareStates()
        self._records: list[Any] = []

    def carry_out(self, change: Change[Any]) -> Any:
        for record in change.records:
            self._records.append(encode(record))
            if not change.is_folded_in:
                self.states.replay(record, 0)
        restarted = ShareStates()
        for record in self._records:
            found = decode(*record)
            assert found is not None
            restarted.replay(found, 0)
        live, again = self.states.partitions.get(KEY), restarted.partitions.get(KEY)
        assert (live is None) == (again is None)
        if live is not None and again is not None:
            assert stored(live) == stored(again)
        return change.answer

    def begin(self, state_epoch: int = 0, start_offset: int = 0) -> Any:
        return self.carry_out(self.states.initialize(KEY, state_epoch, start_offset, 5))

    def read(self, leader_epoch: int = 0) -> Any:
        return self.carry_out(self.states.read(KEY, leader_epoch))

    def write(
        self, *batches: StateBatch, state_epoch: int = 0, leader_epoch: int = 0, start_offset: int = 0
    ) -> Any:
        return self.carry_out(self.states.write(KEY, Write(state_epoch, leader_epoch, start_offset, batches)))

    def summary(self) -> Summary:
        found: Summary = self.states.summarize(KEY).answer
        return found


def code(outcome: Any) -> ErrorCode:
    assert isinstance(outcome, Refusal), outcome
    return outcome.error_code


def test_a_state_is_read_and_written_after_its_beginning_only() -> None:
    coordinator = Coordinator()
    assert coordinator.read() == Refusal(ErrorCode.invalid_request, READ_TOO_EARLY)
    assert code(coordinator.write()) is ErrorCode.invalid_request
    assert coordinator.summary() == Summary(NOT_BEGUN, 0, 0, -1)
    assert coordinator.begin(start_offset=4) is None
    assert coordinator.read() == ShareState(4, ())
    coordinator.carry_out(coordinator.states.delete(KEY))
    assert code(coordinator.read()) is ErrorCode.invalid_request


def test_the_leader_chooses_the_start_of_a_state_without_one() -> None:
    coordinator = Coordinator()
    coordinator.begin(state_epoch=3, start_offset=NOT_BEGUN)
    assert coordinator.read().start_offset == NOT_BEGUN
    assert coordinator.summary() == Summary(NOT_BEGUN, 3, 0, -1)
    batch = StateBatch(5, 5, ACKNOWLEDGED, 1)
    assert code(coordinator.write(batch, state_epoch=3, start_offset=NOT_BEGUN)) is ErrorCode.invalid_request
    assert coordinator.write(batch, state_epoch=3, start_offset=5) is None
    assert coordinator.summary() == Summary(5, 3, 0, 1)


def test_an_earlier_leader_is_fenced_once_a_later_one_has_read() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    assert coordinator.write(StateBatch(0, 3, ACKNOWLEDGED, 1), leader_epoch=2) is None
    assert coordinator.read(leader_epoch=4).leader_epoch == 4
    assert code(coordinator.write(start_offset=9, leader_epoch=3)) is FENCED_LEADER
    assert coordinator.write(start_offset=4, leader_epoch=4) is None
    assert coordinator.read(leader_epoch=1) == ShareState(4, (), leader_epoch=4)


def test_a_leader_of_the_state_before_is_fenced_once_it_begins_anew() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    coordinator.write(StateBatch(0, 3, ACKNOWLEDGED, 1), leader_epoch=2)
    assert coordinator.begin(state_epoch=1, start_offset=2) is None
    assert coordinator.read(leader_epoch=2) == ShareState(2, (), 1, leader_epoch=2)
    assert code(coordinator.write(start_offset=4, leader_epoch=2)) is FENCED_STATE
    assert code(coordinator.begin(state_epoch=0)) is FENCED_STATE
    assert code(coordinator.begin(state_epoch=1, start_offset=-2)) is ErrorCode.invalid_request


def test_a_negative_epoch_is_invalid() -> None:
    """Kafka's `ShareCoordinatorShard.maybeGetWriteStateError`, from 4.4 on; -1 meant any epoch before."""
    coordinator = Coordinator()
    coordinator.begin()
    refused = (
        coordinator.begin(state_epoch=-1),
        coordinator.read(leader_epoch=-1),
        coordinator.write(leader_epoch=-1),
        coordinator.write(state_epoch=-1),
    )
    assert [code(outcome) for outcome in refused] == [ErrorCode.invalid_request] * 4


def test_what_members_had_acquired_here_is_available_to_the_next_leader() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    found = coordinator.states.partitions[KEY]
    found.acquire("a", [(0, 3)], 10, ShareLimits(), 0)
    found.acknowledge("a", [], ShareLimits(), 0)
    state = coordinator.read(leader_epoch=1)
    assert state == ShareState(0, (), leader_epoch=1)
    assert [
        (one.first_offset, one.last_offset) for one in found.acquire("b", [(0, 3)], 10, ShareLimits(), 0)
    ] == [(0, 3)]


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(5, 4, ACKNOWLEDGED, 1)],
        [StateBatch(-1, 4, ACKNOWLEDGED, 1)],
        [StateBatch(0, 0, DeliveryState.ACQUIRED, 1)],
        [StateBatch(0, 0, 6, 1)],
        [StateBatch(0, 0, AVAILABLE, 1), StateBatch(1, 1, AVAILABLE, -1)],
    ],
)
def test_a_batch_that_no_state_has_is_refused(batches: Sequence[StateBatch]) -> None:
    coordinator = Coordinator()
    coordinator.begin()
    assert code(coordinator.write(*batches)) is ErrorCode.invalid_request
    assert coordinator.read() == ShareState(0, ())


def test_later_changes_replace_earlier_ones() -> None:
    coordinator = Coordinator()
    coordinator.begin()
    coordinator.write(StateBatch(0, 9, AVAILABLE, 1))
    coordinator.write(StateBatch(3, 5, ACKNOWLEDGED, 1), StateBatch(5, 6, AVAILABLE, 2))
    assert coordinator.read().batches == (
        StateBatch(0, 2, AVAILABLE, 1),
        StateBatch(3, 4, ACKNOWLEDGED, 1),
        StateBatch(5, 6, AVAILABLE, 2),
        StateBatch(7, 9, AVAILABLE, 1),
    )
    assert coordinator.summary().done == 2
    coordinator.write(start_offset=8)
    assert coordinator.read() == ShareState(8, (StateBatch(8, 9, AVAILABLE, 1),))
