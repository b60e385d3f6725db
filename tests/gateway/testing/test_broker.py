"""The life of a broker: start, stop, restart, kill, reset, and what is left behind after many of them."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from seqgate.gateway.backends.backend import Backend, Ended, StartFailed
from seqgate.gateway.config import ConfigError
from seqgate.gateway.testing import Broker
from seqgate.gateway.testing.data_directory import VARIABLE
from tests.gateway.testing.exchanges import batch, eventually, produce, produce_on, values
from tests.support.wire import Closed, Wire

TIMES = 200


def test_a_restart_keeps_port_data_and_faults(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    with broker:
        first = broker.bootstrap
        assert produce(broker, b"one")["base_offset"] == 0
        fault = broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce")
        broker.restart()
        assert broker.bootstrap == first
        assert produce(broker, b"two")["error_code"] == 19
        assert fault.struck == 1
    with broker:
        assert broker.bootstrap == first
        assert values(broker) == [b"one"]
    assert (tmp_path / "data").is_dir()


def test_two_brokers_run_at_once_and_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as other:
        assert one.bootstrap != other.bootstrap
        assert one.directory != other.directory
        one.faults.close(api="Produce", times=9)
        one.clock.advance(days=1)
        produce(other, b"x")
        assert one.topics() == []
        assert other.records("t")[0].producer_id == -1


def test_what_is_wrong_is_raised_where_the_test_can_see_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown setting num\.partition "):
        Broker(settings={"num.partition": "1"})
    stopped = Broker()
    with pytest.raises(RuntimeError, match=r"has no address before its first start: call start\(\)"):
        _ = stopped.bootstrap
    for call in (stopped.topics, stopped.power_cut, lambda: stopped.faults.fence("x")):
        with pytest.raises(RuntimeError, match=r"the broker does not run: call start\(\)"):
            call()
    with Broker(tmp_path / "data") as running:
        with pytest.raises(RuntimeError, match="runs already"):
            running.start()
        second = Broker(tmp_path / "data")
        with pytest.raises(StartFailed):
            second.start()
        assert not second.is_running
        second.stop()
    second.start()
    second.close()


def test_a_kill_of_a_stopped_broker_does_not_kill_the_next_one() -> None:
    with Broker() as broker:
        produce(broker, b"one")
        broker.stop()
        broker.kill()
        broker.start()
        broker.stop()
        assert (broker.directory / ".kafka_cleanshutdown").exists() or list(broker.directory.glob("*clean*"))
        broker.start()
        assert values(broker) == [b"one"]


def test_a_broker_whose_session_ends_does_not_run_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(_: Backend) -> NoReturn:
        raise Ended("its session has ended")

    with Broker() as broker:
        produce(broker, b"one")
        broker.stop()
        with monkeypatch.context() as ending:
            ending.setattr(Backend, "ended", ended)
            broker.start()
            eventually(lambda: not broker.is_running, "the broker has ended")
        with pytest.raises(RuntimeError, match=r"the broker does not run: call start\(\)"):
            broker.topics()
        broker.clock.advance(seconds=1)
        broker.start()
        assert produce(broker, b"two")["base_offset"] == 1
        broker.restart()
        assert values(broker) == [b"one", b"two"]


def test_a_kill_keeps_what_was_written_and_breaks_connections() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=3)
        with Wire(broker.bootstrap) as wire:
            for number in range(30):
                produce_on(wire, batch(b"%d" % number), partition=number % 3)
            broker.kill()
            with pytest.raises((Closed, ConnectionError)):
                wire.call("metadata", 12, topics=None)
        broker.start()
        assert sorted(map(int, filter(None, values(broker)))) == list(range(30))
        assert produce(broker, b"after")["base_offset"] == 10


def test_a_killed_broker_ends_a_call_that_waits_for_it() -> None:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("t")
        fault = broker.faults.drop_answer(api="Produce", closes=False)
        waiting = threading.Thread(target=lambda: _ignoring(lambda: produce_on(wire, batch(b"x"))))
        waiting.start()
        fault.wait_until_struck()
        broker.kill()
        waiting.join(10)
        assert not waiting.is_alive()


def _ignoring(call: Callable[[], object]) -> None:
    with contextlib.suppress(Closed, OSError):
        call()


def test_a_reset_leaves_an_empty_broker_on_the_same_port() -> None:
    with Broker() as broker:
        address, today = broker.bootstrap, produce(broker, b"one")
        fault = broker.faults.close(api="Metadata", times=9)
        broker.clock.advance(days=3)
        broker.reset()
        assert broker.bootstrap == address
        assert broker.topics() == []
        assert broker.groups() == {}
        assert fault.has_ended
        assert produce(broker, b"two")["base_offset"] == today["base_offset"] == 0
    with Broker() as broker:
        broker.stop()
        broker.reset()
        assert broker.topics() == []


def test_topics_are_created_with_partitions_and_configs(broker: Broker) -> None:
    broker.create_topic("b", partitions=2, configs={"retention.ms": "1000"})
    broker.create_topic("a")
    assert broker.topics() == ["a", "b"]
    with pytest.raises(ValueError, match=r"topic 'a' can't be created: .*exists"):
        broker.create_topic("a")
    with pytest.raises(ValueError, match=r"topic 'c' can't be created: .*no.such"):
        broker.create_topic("c", configs={"no.such.config": "1"})
    with pytest.raises(ValueError, match="topic 'x y' can't be created"):
        broker.create_topic("x y")


def _open_handles() -> int:
    handles = Path("/proc/self/fd")
    return len(list(handles.iterdir())) if handles.exists() else 0


def _temporary() -> set[Path]:
    return set(Path(os.environ[VARIABLE]).glob("seqgate-*"))


@pytest.mark.tier("all")
def test_nothing_is_left_behind_after_many_starts_kills_and_resets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    Broker()
    with pytest.raises(ConfigError):
        Broker(settings={"num.partitions": "x"})
    with Broker() as first:
        first.create_topic("t")
    gc.collect()
    threads, handles = set(threading.enumerate()), _open_handles()
    for number in range(TIMES // 4):
        with Broker() as broker:
            produce(broker, b"x")
            if number % 3 == 0:
                broker.kill()
                broker.start()
            elif number % 3 == 1:
                broker.power_cut()
                broker.start()
    with Broker() as broker:
        for _ in range(TIMES):
            broker.reset()
    gc.collect()
    assert set(threading.enumerate()) <= threads  # those of other tests may have ended
    # Clients of other tests in this process may open some meanwhile. One handle left by each broker would be
    # many more.
    assert _open_handles() < handles + TIMES // 8
    assert _temporary() == set()
    forgotten = Broker()
    forgotten.start()
    forgotten.stop()
    assert len(_temporary()) == 1
    del forgotten, broker
    gc.collect()
    assert _temporary() == set()
