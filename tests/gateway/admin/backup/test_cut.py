"""The cut of a backup: all gateways stand still at the same moment, or there is no cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from seqgate.gateway.admin.backup import bucket
from seqgate.gateway.admin.backup.bucket import BucketCut, CutRequest, HeldLog, HoldRequest, ReleaseRequest
from seqgate.gateway.admin.request import ControlAnswer, ControlError
from seqgate.gateway.cluster.wal.backups import LONGEST_HOLD_S, SessionHolds
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.peer.peers import PeerUnavailable
from seqgate.gateway.tasks import end_tasks
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

METADATA_END = 9


class Gateway:
    """A gateway with a session. It asks `others` as `Peers` does, and only over connections of their own."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.objects = SimulatedObjects(SimulatedBucket())
        session = Session(node_id + 10, node_id, bytes(16), "cluster")
        self.wal = SessionWal(self.objects, session, puts_in_flight=4, chance=Random(node_id))
        self.holds = SessionHolds(self.objects, self.wal, 60.0, lambda: METADATA_END)
        self.others: dict[int, Gateway] = {}
        self.asked: list[str] = []
        self.delay_s = 0.0
        self.is_silent_at: int | None = None
        """The number of the first request that this gateway does not answer, and does not carry out."""
        self.open = 0
        """The connections apart that are not closed."""

    @property
    def live(self) -> Any:
        brokers = SimpleNamespace(others=lambda: sorted(self.others))
        peers = SimpleNamespace(apart=self.apart)
        node = SimpleNamespace(brokers=brokers, peers=peers, clock=SimpleNamespace(now_ms=lambda: 5))
        return SimpleNamespace(services=SimpleNamespace(node=node, upkeep=SimpleNamespace(holds=self.holds)))

    def apart(self) -> Gateway:
        """Open connections of their own."""
        self.open += 1
        return self

    async def close(self) -> None:
        """Close them."""
        self.open -= 1

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = 10.0) -> Any:
        """Ask another gateway."""
        other = self.others[node_id]
        question = msgspec.json.decode(request.question, type=HoldRequest | ReleaseRequest)
        other.asked.append(type(question).__name__)
        await asyncio.sleep(other.delay_s)
        if other.is_silent_at is not None and len(other.asked) >= other.is_silent_at:
            raise PeerUnavailable(f"broker {node_id} did not answer in {timeout_s:g} s")
        try:
            if isinstance(question, HoldRequest):
                result = msgspec.json.encode(bucket.hold(other.live, question))
            else:
                result = msgspec.json.encode(bucket.release(other.live, question))
        except ControlError as error:
            return SimpleNamespace(answer=msgspec.json.encode(ControlAnswer(error=str(error))))
        return SimpleNamespace(answer=msgspec.json.encode(ControlAnswer(msgspec.Raw(result))))


def three() -> list[Gateway]:
    gateways = [Gateway(node_id) for node_id in (1, 2, 3)]
    for each in gateways:
        each.others = {other.node_id: other for other in gateways if other is not each}
    return gateways


def played(scene: Callable[[list[Gateway]], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        gateways = three()
        for count, each in enumerate(gateways):
            for _ in range(count):
                await each.wal.barrier()
        await scene(gateways)
        for each in gateways:
            async with asyncio.timeout(LONGEST_HOLD_S):
                await each.wal.barrier()  # nobody is held any more
            await each.wal.close()
            assert each.open == 0

    in_virtual_time(whole())


async def cut_of(gateway: Gateway) -> BucketCut:
    return await bucket.cut(gateway.live, CutRequest())


def test_the_cut_has_the_ends_of_all_gateways_and_of_the_metadata() -> None:
    async def scene(gateways: list[Gateway]) -> None:
        found = await cut_of(gateways[0])
        ends = [(1, 11, 0), (2, 12, 1), (3, 13, 2)]
        held = [HeldLog(node_id, session, "00" * 16, end) for node_id, session, end in ends]
        assert found == BucketCut(5, METADATA_END, held)

    played(scene)


@pytest.mark.parametrize("silent_at", [1, 2, 3])
def test_a_gateway_that_does_not_answer_leaves_no_cut_and_holds_nobody(silent_at: int) -> None:
    async def scene(gateways: list[Gateway]) -> None:
        gateways[2].is_silent_at = silent_at
        found = await cut_of(gateways[0])
        timeout_s = 10 if silent_at == 1 else 2
        reason = f"the gateway on node 3 gave no answer: broker 3 did not answer in {timeout_s} s"
        assert found == BucketCut(0, 0, [], reason, has_held=silent_at > 1)
        asked = ["ReleaseRequest", "HoldRequest", "ReleaseRequest"]
        assert gateways[1].asked == (asked[:1] if silent_at == 1 else asked), "only who answers is waited for"
        await asyncio.sleep(LONGEST_HOLD_S)

    played(scene)


def test_a_hold_that_ended_before_the_others_began_leaves_no_cut() -> None:
    async def scene(gateways: list[Gateway]) -> None:
        gateways[2].delay_s = LONGEST_HOLD_S * 1.5
        found = await cut_of(gateways[0])
        assert "could not be held long enough" in str(found.refusal)

    played(scene)


def test_a_store_that_does_not_answer_leaves_no_cut() -> None:
    async def scene(gateways: list[Gateway]) -> None:
        gateways[0].objects.is_cut_off = True
        found = await cut_of(gateways[0])
        assert found.refusal
        gateways[0].objects.is_cut_off = False

    played(scene)


def test_two_backups_at_the_same_moment_do_not_share_a_hold() -> None:
    async def scene(gateways: list[Gateway]) -> None:
        for each in gateways:
            each.delay_s = 0.1
        found = await asyncio.gather(cut_of(gateways[0]), cut_of(gateways[1]))
        assert any("another backup" in str(each.refusal) for each in found)

    played(scene)


# No cut has an effect without its cause.


class Gossip:
    """Gateways that write because of what others wrote, as soon as that is confirmed."""

    def __init__(self, gateways: list[Gateway], seed: int) -> None:
        self._gateways = gateways
        self._chance = Random(seed)
        self._causes: dict[tuple[int, int], tuple[int, int] | None] = {}
        """The record of which each record is an effect: node id and seq of both."""

    async def go_on(self) -> None:
        cause: tuple[int, int] | None = None
        while True:
            at = self._chance.choice(self._gateways)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            written = at.node_id, at.wal.next_seq
            self._causes[written] = cause
            at.wal.put((), (), lambda done=done: done.done() or done.set_result(None))  # type: ignore[misc]
            await done
            cause = written
            await asyncio.sleep(self._chance.random() * 0.01)

    async def cuts(self, count: int) -> list[BucketCut]:
        """Take cuts, from any gateway, with other delays each time; return those that there are."""
        found = []
        for _ in range(count):
            for each in self._gateways:
                each.delay_s = self._chance.random() * 0.1
            found.append(await cut_of(self._chance.choice(self._gateways)))
            await asyncio.sleep(self._chance.random())
        return [each for each in found if each.refusal is None]

    def torn(self, cut: BucketCut) -> list[tuple[int, int]]:
        """Return the records in the cut whose causes are not in it."""
        ends = {log.node_id: log.end_seq for log in cut.logs}
        return [
            record
            for record, cause in self._causes.items()
            if record[1] < ends[record[0]] and cause is not None and cause[1] >= ends[cause[0]]
        ]


async def torn_records(gateways: list[Gateway], seed: int) -> list[tuple[int, int]]:
    gossip = Gossip(gateways, seed)
    chains = [asyncio.ensure_future(gossip.go_on()) for _ in range(6)]
    cuts = await gossip.cuts(20)
    assert len(cuts) == 20
    await end_tasks(*chains)
    return [record for cut in cuts for record in gossip.torn(cut)]


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_has_an_effect_without_its_cause(seed: int) -> None:
    async def scene(gateways: list[Gateway]) -> None:
        assert await torn_records(gateways, seed) == []

    played(scene)


def test_ends_that_are_read_without_a_hold_tear_what_gateways_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionWal, "hold", lambda self: self.confirmed_end)

    async def scene(gateways: list[Gateway]) -> None:
        assert await torn_records(gateways, 1)

    played(scene)


def test_a_gateway_without_a_bucket_is_not_held() -> None:
    services = SimpleNamespace(upkeep=SimpleNamespace(holds=None))
    with pytest.raises(ControlError, match="without --cluster"):
        bucket.hold(SimpleNamespace(services=services), HoldRequest("b"))  # type: ignore[arg-type]
