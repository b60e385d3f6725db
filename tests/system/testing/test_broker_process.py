"""A broker in a process of its own does what a broker in a thread does."""

from __future__ import annotations

import gc
import math
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.testing import BrokerProcess
from seqgate.gateway.testing.broker_process import COUNTS_TIMEOUT_S, RemoteFaults
from seqgate.gateway.testing.data_directory import VARIABLE
from tests.gateway.testing.exchanges import batch, initialise, produce_on
from tests.support.wire import Closed, Plain, Wire

NOT_ENOUGH_REPLICAS = 19
KAFKA_STORAGE_ERROR = 56


@pytest.fixture(scope="module")
def shared() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


@pytest.fixture
def broker(shared: BrokerProcess) -> BrokerProcess:
    shared.reset()
    shared.create_topic("t")
    return shared


def test_it_starts_in_a_process_with_many_open_files(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4096), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with BrokerProcess(str(tmp_path / "data")) as broker:
            assert broker.directory == tmp_path / "data"
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def produce(broker: BrokerProcess, value: bytes, **fields: int) -> Plain:
    with Wire(broker.bootstrap) as wire:
        return produce_on(wire, batch(value, **fields))


def test_faults_strike_and_tell_how_often(broker: BrokerProcess) -> None:
    with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", after=1) as fault:
        codes = [produce(broker, b"%d" % number)["error_code"] for number in range(3)]
        assert codes == [0, NOT_ENOUGH_REPLICAS, 0]
        fault.wait_until_struck()
        assert (fault.seen, fault.struck) == (2, 1)
        assert str(fault) == "error NOT_ENOUGH_REPLICAS (api Produce)"
    with broker.faults.drop_answer(api="Produce", times=5), pytest.raises(Closed):
        produce(broker, b"3")
    assert produce(broker, b"4")["error_code"] == 0
    broker.assert_exactly_once("t", [b"0", b"2", b"3", b"4"])
    with pytest.raises(AssertionError, match="topic t: 1 lost: '5'"):
        broker.assert_exactly_once("t", [b"0", b"2", b"3", b"4", b"5"])


def test_every_fault_can_be_ordered(broker: BrokerProcess) -> None:
    faults = broker.faults
    chosen = {"topic": "t", "times": 2, "after": 1}
    ordered = [
        faults.drop_answer(api="Fetch", closes=False, **chosen),
        faults.close(api="Fetch", client="c", **chosen),
        faults.error("NOT_ENOUGH_REPLICAS", carries_out=True, **chosen),
        faults.delay(5, **chosen),
        faults.throttle(5, **chosen),
        faults.corrupt(**chosen),
        faults.not_leader(**chosen),
        faults.coordinator_moves(times=2),
        faults.watch(topic="t"),
        faults.script(7, rate=0.5, topic="t"),
        faults.partition_offline("t"),
        faults.disk_full(),
    ]
    assert len({str(each) for each in ordered}) == len(ordered)
    faults.reset()
    assert produce(broker, b"x")["error_code"] == 0


def test_broken_parts_are_repaired_at_the_end(broker: BrokerProcess) -> None:
    for order in (lambda: broker.faults.partition_offline("t"), broker.faults.disk_full):
        with order() as broken:
            assert produce(broker, b"x")["error_code"] == KAFKA_STORAGE_ERROR
            assert broken.struck == 1
        assert produce(broker, b"y")["error_code"] == 0


def test_a_fault_ends_with_its_run_and_keeps_its_counts(broker: BrokerProcess) -> None:
    with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce") as killed:
        assert produce(broker, b"x")["error_code"] == NOT_ENOUGH_REPLICAS
        broker.kill()
        assert (killed.seen, killed.struck) == (1, 1)
        broker.start()
        # it has the number of the fault before, which must not end it
        other = broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce")
    assert produce(broker, b"x")["error_code"] == NOT_ENOUGH_REPLICAS
    with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", times=2) as cleared:
        assert produce(broker, b"x")["error_code"] == NOT_ENOUGH_REPLICAS
        broker.faults.reset()
        assert produce(broker, b"x")["error_code"] == 0
    with broker.faults.watch() as watched:
        broker.reset()
    assert (killed.struck, other.struck, cleared.struck, watched.struck) == (1, 1, 1, 0)


def test_the_end_of_a_run_waits_for_one_answer_at_most() -> None:
    asked: list[str] = []

    def ask(method: str, path: str, *_: object, timeout_s: float = math.inf) -> Any:
        if method == "GET":
            asked.append(path)
            assert timeout_s <= COUNTS_TIMEOUT_S
            raise ControlError("nobody answers")
        return {"id": len(asked), "struck": 1}

    faults = RemoteFaults(ask)
    with faults.watch():
        pass
    faults.end_run()
    assert not asked, "an ended fault has its counts"
    left = [faults.watch(), faults.watch()]
    faults.end_run()
    assert asked == ["/faults"]
    assert [fault.struck for fault in left] == [1, 1]


def test_wrong_orders_raise_what_a_broker_in_a_thread_raises(broker: BrokerProcess) -> None:
    with pytest.raises(ValueError, match="'Publish' is not the name of an API"):
        broker.faults.close(api="Publish")
    with pytest.raises(ValueError, match="close has no field 'code'"):
        broker.faults.close(code="NOT_ENOUGH_REPLICAS")
    with pytest.raises(ValueError, match="'melt' is no fault; the faults are drop_answer, close"):
        broker.faults.order("melt")
    with pytest.raises(LookupError, match="there is no partition t-7"):
        broker.faults.partition_offline("t", 7)
    with pytest.raises(LookupError, match="there is no topic 'u'"):
        broker.records("u")
    with pytest.raises(LookupError, match="there is no transactional id 'x'"):
        broker.faults.fence("x")
    with pytest.raises(ValueError, match="topic 't' can't be created"):
        broker.create_topic("t")
    with pytest.raises(RuntimeError, match="call start"):
        BrokerProcess().topics()
    with pytest.raises(StartFailed, match="Unknown setting num"):
        BrokerProcess(settings={"num.partition": "1"}).start()


def test_settings_count_and_those_of_the_environment_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQGATE_NODE_ID", "77")
    monkeypatch.setenv("SEQGATE_CONFIG", "/no/such/file")
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "advertised.listeners": "INSIDE://inside.test:1,OUTSIDE://outside.test:2",
    }
    with BrokerProcess(settings=settings) as broker:
        before = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == before
        with Wire(broker.bootstrap) as wire:
            (node,) = wire.call("metadata", 12, topics=None).fields["brokers"]
    assert (node["host"], node["port"]) == ("inside.test", 1)
    assert node["node_id"] != 77


def test_records_and_producers_come_through_whole(broker: BrokerProcess) -> None:
    with Wire(broker.bootstrap) as wire:
        producer_id, epoch = initialise(wire)
    produce(broker, b"\xff\x00", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    (record,) = broker.records("t")
    assert (record.value, record.key, record.headers, record.producer_id) == (
        b"\xff\x00",
        None,
        (),
        producer_id,
    )
    (row,) = broker.producers("t")
    assert (row.producer_id, row.last_sequence, row.has_open_transaction) == (producer_id, 0, False)
    assert broker.faults.expire_producer(producer_id) == 1
    assert broker.producers("t") == []
    assert broker.groups() == {}
    broker.assert_exactly_once("t", [b"\xff\x00"])


def test_the_clock_moves(broker: BrokerProcess) -> None:
    broker.create_topic("old", configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.advance(hours=1)
    with Wire(broker.bootstrap) as wire:
        produce_on(wire, batch(b"x"), "old")
    (record,) = broker.records("old")
    assert record.timestamp / 1000 - time.time() > 3_500


def test_a_kill_keeps_and_a_power_cut_loses(broker: BrokerProcess) -> None:
    produce(broker, b"kept")
    address = broker.bootstrap
    broker.kill()
    broker.start()
    assert broker.bootstrap == address
    broker.restart()
    produce(broker, b"lost")
    broker.power_cut()
    broker.start()
    broker.assert_exactly_once("t", [b"kept"])
    assert produce(broker, b"next")["base_offset"] == 1


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    gc.collect()  # other tests may have left some to it
    handles = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        with BrokerProcess() as broker:
            broker.kill()
            broker.start()
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= handles
    assert list(tmp_path.iterdir()) == []
