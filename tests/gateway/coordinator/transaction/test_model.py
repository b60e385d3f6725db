"""Transaction requests in any order, repeated, and from fenced clients, compared with a simple model of the
promises.

The model knows only the answers: which producer is the current one, and how each transaction ended. A crash
is simulated by a new shard, built from the records written so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import (
    COMPLETED,
    DECIDED,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    TransactionRecord,
    decode,
    encode,
)
from seqgate.gateway.coordinator.transaction.rules import (
    NeedsProducerId,
    Producer,
    TransactionRefused,
    TransactionShard,
)
from seqgate.gateway.handlers.transactions.end_txn import EndRequest, decided_by
from seqgate.gateway.handlers.transactions.init_producer_id import next_state

NAME = "t"
TIMEOUT_MS = 100
PLACES = [("a", 0), ("a", 1), ("b", 0)]
FIRST_EPOCH = 32_760
"""The first producer epoch: close to the last one, so that producer ids change often."""


A = TypeVar("A")


def _asked(rule: Callable[[], A]) -> A | ErrorCode:
    """Return a rule's result, or its reason to refuse."""
    try:
        return rule()
    except TransactionRefused as error:
        return error.error_code


def _needs_id(rule: Callable[[], object]) -> bool:
    try:
        _asked(rule)
    except NeedsProducerId:
        return True
    return False


@dataclass
class Client:
    """A process that got a producer id, and its requests since."""

    producer: Producer
    version: int
    wrote: set[tuple[str, int]] = field(default_factory=set)
    """The partitions that the client added since its last transaction was decided."""
    asked: EndRequest | None = None
    """The client's last EndTxn, which the client may repeat."""
    was_answered: bool = True


class Machine(RuleBasedStateMachine):
    """One transactional id and all clients that ever used it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.shard = TransactionShard()
        self.clients: list[Client] = []
        self.now_ms = 0
        self.next_producer_id = 100
        self.marked: dict[tuple[int, int], bool] = {}
        """The outcome of each decided transaction, by the producer id and epoch of its markers."""

    @property
    def current(self) -> Transaction | None:
        return self.shard.transactions.get(NAME)

    def write(self, value: Transaction | None) -> None:
        raw = encode(TransactionRecord(NAME, value))
        self.records.append(raw)
        record = decode(*raw)
        assert record is not None
        self.shard.replay(record, self.now_ms)

    def fresh(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def decide(self, value: Transaction) -> None:
        key = value.producer_id, value.producer_epoch
        is_commit = value.state is PREPARE_COMMIT
        assert self.marked.setdefault(key, is_commit) == is_commit or value.client_version < 2
        self.write(value)

    @initialize()
    def start_near_the_last_epoch(self) -> None:
        self.write(Transaction(100, FIRST_EPOCH, TIMEOUT_MS, last_update_ms=0))

    @rule(version=st.sampled_from((0, 2)))
    def a_new_client_begins(self, version: int) -> None:
        producer = self._begin(Producer())
        if producer is not None:
            self.clients.append(Client(producer, version))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_recovers(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        producer = self._begin(client.producer)
        if producer is None:
            return
        client.producer, client.wrote, client.asked = producer, set(), None

    def _begin(self, claimed: Producer) -> Producer | None:
        needs_id = _needs_id(lambda: next_state(self.current, TIMEOUT_MS, claimed, None, self.now_ms))
        fresh = self.fresh() if needs_id else None
        after = _asked(lambda: next_state(self.current, TIMEOUT_MS, claimed, fresh, self.now_ms))
        if isinstance(after, ErrorCode):
            assert after in {ErrorCode.concurrent_transactions, ErrorCode.producer_fenced}
            assert claimed.is_named or after is ErrorCode.concurrent_transactions
            return None
        assert after is not None
        if after.state in DECIDED:
            self.decide(after)
            return None
        self.write(after)
        return Producer(after.producer_id, after.producer_epoch)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), place=st.sampled_from(PLACES))
    def a_client_writes(self, data: st.DataObject, place: tuple[str, int]) -> None:
        client = data.draw(st.sampled_from(self.clients))
        try:
            after = rules.add_partitions(
                self.current, client.producer, frozenset({place}), client.version, 10, self.now_ms
            )
        except TransactionRefused:
            assert not self._is_current(client) or self._is_decided()
            return
        assert self._is_current(client)
        if after is not None:
            self.write(after)
        client.wrote.add(place)

    def _is_current(self, client: Client) -> bool:
        current = self.current
        return current is not None and client.producer == (current.producer_id, current.producer_epoch)

    def _is_decided(self) -> bool:
        return self.current is not None and self.current.state in DECIDED

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), is_answered=st.booleans())
    def a_client_ends(self, data: st.DataObject, commit: bool, is_answered: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        asks_again = client.asked is not None and not client.was_answered
        request = client.asked if asks_again else EndRequest(client.producer, commit, client.version)
        assert request is not None
        before = self.current
        needs_id = _needs_id(lambda: decided_by(before, request, None, self.now_ms))
        fresh = self.fresh() if needs_id else None
        after = _asked(lambda: decided_by(before, request, fresh, self.now_ms))
        if isinstance(after, ErrorCode):
            return
        assert before is not None
        if after is not None:
            assert self._is_current(client)
            if before.state is ONGOING:
                assert client.wrote <= before.partitions
            self.decide(after)
            # A client of version 0 keeps its epoch, so it can begin the next transaction without this answer.
            client.wrote, client.asked, client.was_answered = set(), request, False
            return
        if asks_again and request.client_version >= 2:
            # The markers must have the end that was confirmed to the client.
            assert before.state is COMPLETED[PREPARE_COMMIT] or not request.commit
        if is_answered:
            client.producer = Producer(before.producer_id, before.producer_epoch)
            client.wrote, client.asked, client.was_answered = set(), None, True

    @precondition(lambda self: self._is_decided())
    @rule()
    def the_markers_are_written(self) -> None:
        current = self.current
        assert current is not None
        self.write(rules.complete(current, self.now_ms))

    @rule(passed_ms=st.integers(1, 60))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for name in self.shard.overdue(self.now_ms):
            self.decide(rules.fence(self.shard.transactions[name], self.now_ms))

    @rule()
    def the_gateway_crashes(self) -> None:
        before = self.shard
        self.shard = TransactionShard()
        for raw in self.records:
            record = decode(*raw)
            assert record is not None
            self.shard.replay(record, self.now_ms)
        assert self.shard.transactions == before.transactions
        assert (self.shard.open, self.shard.decided) == (before.open, before.decided)
        assert self.shard.by_producer_id == before.by_producer_id

    @rule(lost=st.integers(1, 3))
    def the_gateway_crashes_and_the_last_records_are_lost(self, lost: int) -> None:
        """Drop records whose clients got no answer yet."""
        kept = len(self.records) - lost
        if kept < 1:
            return
        shard = TransactionShard()
        for raw in self.records[:kept]:
            record = decode(*raw)
            assert record is not None
            shard.replay(record, self.now_ms)
        assert shard.open | shard.decided <= {NAME}
        current = shard.transactions[NAME]
        if current.state in DECIDED:
            rules.complete(current, self.now_ms)
        elif current.state is ONGOING:
            rules.fence(current, self.now_ms)

    @invariant()
    def at_most_one_producer_may_write(self) -> None:
        present = {client.producer for client in self.clients if self._is_current(client)}
        assert len(present) <= 1

    @invariant()
    def epochs_stay_in_bounds(self) -> None:
        current = self.current
        if current is not None:
            assert 0 <= current.producer_epoch <= 32_767
            assert current.state not in DECIDED or current.producer_epoch > 0 or current.client_version < 2


@dataclass
class OneClient:
    """Draw this client instead of any other, so that a test can replay a story step by step."""

    client: Client

    def draw(self, _strategy: object) -> Client:
        return self.client


def test_a_transaction_begun_before_the_answer_to_the_last_end_holds_only_its_own_writes() -> None:
    machine = Machine()
    machine.start_near_the_last_epoch()
    machine.a_new_client_begins(version=0)
    client = machine.clients[0]
    only: Any = OneClient(client)
    machine.a_client_writes(data=only, place=("a", 1))
    machine.a_client_ends(data=only, commit=False, is_answered=False)
    machine.the_markers_are_written()
    machine.a_client_writes(data=only, place=("a", 0))
    assert machine.current is not None
    assert machine.current.partitions == client.wrote == {("a", 0)}
    machine.a_client_ends(data=only, commit=False, is_answered=False)


TestTransactionalId = Machine.TestCase
TestTransactionalId.settings = settings(max_examples=60, stateful_step_count=40)
