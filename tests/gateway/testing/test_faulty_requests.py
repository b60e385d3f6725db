"""What faults do to single requests: answers dropped, lost, late, refused, throttled, spoiled; and requests
that no fault may break.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.kafka_4_4 import API_NAMES
from seqgate.gateway.testing import Broker, Fault
from tests.gateway.testing.exchanges import batch, eventually, produce, produce_on, values
from tests.support.batches import read_batches
from tests.support.full_requests import full_request
from tests.support.wire import CLIENT_ID, Closed, Plain, Wire

NOT_ENOUGH_REPLICAS = 19
NO_ROWS = {"sasl_handshake", "sasl_authenticate"}
Order = Callable[[Broker], Fault]


def fetch(wire: Wire, *topics: str, version: int = 11, broker: Broker | None = None) -> list[Plain]:
    """Return the first row of each topic."""
    names = [{"topic_id": _topic_id(wire, each)} if version > 12 else {"topic": each} for each in topics]
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    rows = [{**name, "partitions": partitions} for name in names]
    request = {"max_wait": 100, "min_bytes": 1, "max_bytes": 1 << 20, "topics": rows}
    answer = wire.call("fetch", version, request).fields
    return [topic["partitions"][0] for topic in answer["responses"]]


def _topic_id(wire: Wire, topic: str) -> str:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return str(wire.call("metadata", 12, asked).fields["topics"][0]["topic_id"])


def test_a_dropped_answer_leaves_the_record_and_a_closed_connection(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.drop_answer(api="Produce", topic="t") as fault:
        with pytest.raises(Closed):
            produce_on(wire, batch(b"one"))
        assert fault.struck == 1
    assert produce(broker, b"two")["base_offset"] == 1
    assert values(broker) == [b"one", b"two"]


def test_a_closed_connection_leaves_no_record(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.close(api="Produce"), pytest.raises(Closed):
        produce_on(wire, batch(b"one"))
    assert values(broker) == []


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize(("kind", "when"), [("close", "before"), ("drop_answer", "after")])
def test_the_log_says_who_closed_a_connection_and_warns_of_nothing(
    broker: Broker, caplog: pytest.LogCaptureFixture, kind: str, when: str, acks: int
) -> None:
    broker.create_topic("t")
    order = getattr(broker.faults, kind)
    with caplog.at_level(logging.INFO), Wire(broker.bootstrap) as wire, order(api="Produce"):
        wire.send("produce", 9, _one_batch(b"one", acks))
        with pytest.raises(Closed):
            wire.receive_frame()
    (line,) = [each for each in caplog.records if "closing the connection" in each.message]
    assert line.levelno == logging.INFO
    assert line.message.endswith(f": a test ordered it {when} Produce")
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_an_error_after_the_append_leaves_the_record(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        for carries_out in (True, False):
            broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", carries_out=carries_out)
            row = produce_on(wire, batch(b"stored" if carries_out else b"refused"))
            assert (row["error_code"], row["base_offset"]) == (NOT_ENOUGH_REPLICAS, -1)
        assert produce_on(wire, batch(b"next"))["base_offset"] == 1
    assert values(broker) == [b"stored", b"next"]


def test_a_lost_answer_never_comes_and_holds_up_no_stop(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.drop_answer(api="Produce", closes=False) as fault:
        records = [{"index": 0, "records": batch(b"one")}]
        request = {"acks": -1, "timeout": 5_000, "topic_data": [{"name": "t", "partition_data": records}]}
        wire.send("produce", 9, request)
        fault.wait_until_struck()
        assert values(broker) == [b"one"]
        assert not wire.has_input()
        broker.stop()
        with pytest.raises(Closed):
            wire.receive_frame()


def test_a_late_answer_holds_up_a_stop_no_longer_than_needed(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        with broker.faults.delay(200, api="Produce"):
            begun = time.monotonic()
            assert produce_on(wire, batch(b"one"))["base_offset"] == 0
            assert time.monotonic() - begun >= 0.2
        with broker.faults.delay(3_600_000, api="Produce") as fault:
            wire.send("produce", 9, _one_batch(b"two"))
            fault.wait_until_struck()
            broker.stop()


def _one_batch(value: bytes, acks: int = -1) -> Plain:
    rows = [{"index": 0, "records": batch(value)}]
    return {"acks": acks, "timeout": 5_000, "topic_data": [{"name": "t", "partition_data": rows}]}


def test_the_clock_ends_a_delay(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.delay(3_600_000, api="Produce") as fault:
        sent = wire.send("produce", 9, _one_batch(b"one"))
        fault.wait_until_struck()
        broker.clock.advance(hours=1)
        wire.receive("produce", 9, sent)


@pytest.mark.parametrize("carries_out", [False, True])
def test_a_late_error_lets_the_next_request_be_carried_out_first(
    broker: Broker, *, carries_out: bool
) -> None:
    broker.create_topic("t")
    hour_ms = 3_600_000
    broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", carries_out=carries_out, milliseconds=hour_ms)
    with Wire(broker.bootstrap) as wire:
        sent = [wire.send("produce", 9, _one_batch(value)) for value in (b"one", b"two")]
        eventually(lambda: b"two" in values(broker), "the second record is stored")
        assert values(broker) == ([b"one", b"two"] if carries_out else [b"two"])
        assert not wire.has_input()
        broker.clock.advance(hours=1)
        answers = [wire.receive("produce", 9, each).fields["responses"][0] for each in sent]
    assert [row["partition_responses"][0]["error_code"] for row in answers] == [NOT_ENOUGH_REPLICAS, 0]


def test_after_and_times_choose_among_requests(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        fault = broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", after=2, times=2)
        codes = [produce_on(wire, batch(b"%d" % number))["error_code"] for number in range(6)]
    assert codes == [0, 0, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS, 0, 0]
    assert (fault.struck, fault.effects["error NOT_ENOUGH_REPLICAS"]) == (2, 2)


def test_client_and_topic_choose_among_requests(broker: Broker) -> None:
    for topic in ("t", "u"):
        broker.create_topic(topic)
    broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", topic="u", client=CLIENT_ID, times=9)
    broker.faults.close(api="Produce", client="another client", times=9)
    with Wire(broker.bootstrap) as wire:
        assert produce_on(wire, batch(b"x"), "t")["error_code"] == 0
        assert produce_on(wire, batch(b"x"), "u")["error_code"] == NOT_ENOUGH_REPLICAS


def _naming(topic: str) -> list[tuple[str, int, Plain]]:
    """Return requests that name a topic in a list of names, or as a resource."""
    resource = {"resource_type": 2, "resource_name": topic}
    asked = {**resource, "configuration_keys": None}
    options = {"include_synonyms": False, "include_documentation": False}
    return [
        ("describe_configs", 4, {"resources": [asked], **options}),
        ("alter_configs", 2, {"resources": [{**resource, "configs": []}], "validate_only": True}),
        ("incremental_alter_configs", 1, {"resources": [{**resource, "configs": []}], "validate_only": True}),
        ("delete_topics", 5, {"topic_names": [topic], "timeout": 1_000}),
    ]


def test_administrative_requests_name_their_topics(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.watch(topic="t") as watched:
        for number, (api, version, fields) in enumerate(_naming("t"), start=1):
            wire.call(api, version, fields)
            assert watched.struck == number, api
        for api, version, fields in _naming("u"):
            wire.call(api, version, fields)
        assert watched.struck == len(_naming("t"))


def test_a_topic_is_known_by_its_id(broker: Broker) -> None:
    produce(broker, b"x", topic="t")
    produce(broker, b"x", topic="u")
    fault = broker.faults.error("NOT_LEADER_OR_FOLLOWER", api="Fetch", topic="u")
    with Wire(broker.bootstrap) as wire:
        assert fetch(wire, "t", version=13)[0]["error_code"] == 0
        assert fetch(wire, "u", version=13) == []
    assert fault.struck == 1


@pytest.mark.parametrize("version", [4, 11, 13, 16])
def test_one_bit_of_the_records_of_the_named_topic_is_flipped(broker: Broker, version: int) -> None:
    produce(broker, b"x" * 100, topic="t")
    produce(broker, b"x" * 100, topic="u")
    broker.create_topic("empty")
    fault = broker.faults.corrupt(topic="u", times=1)
    with Wire(broker.bootstrap) as wire:
        whole, broken = (row["records"] for row in fetch(wire, "t", "u", version=version))
        assert fault.struck == 1
        again = fetch(wire, "u", version=version)[0]["records"]
    assert again == whole
    assert sum((a ^ b).bit_count() for a, b in zip(broken, whole, strict=True)) == 1
    assert read_batches(whole)


def test_an_answer_without_records_is_not_spoiled(broker: Broker) -> None:
    broker.create_topic("empty")
    produce(broker, b"x", topic="t")
    fault = broker.faults.corrupt()
    with Wire(broker.bootstrap) as wire:
        assert fetch(wire, "empty")[0]["error_code"] == 0
        assert fault.struck == 0
        fetch(wire, "t")
    assert fault.struck == 1


def test_throttled_answers_name_the_time(broker: Broker) -> None:
    broker.create_topic("t")
    broker.faults.throttle(1_234, api="Produce")
    broker.faults.throttle(4_321, api="Metadata")
    with Wire(broker.bootstrap) as wire:
        assert wire.call("produce", 9, _one_batch(b"x")).fields["throttle_time"] == 1_234
        assert wire.call("metadata", 12, topics=None).fields["throttle_time"] == 4_321
    assert values(broker) == [b"x"]


@pytest.mark.parametrize(
    ("order", "is_stored"),
    [
        (lambda broker: broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce"), False),
        (lambda broker: broker.faults.close(api="Produce"), False),
        (lambda broker: broker.faults.drop_answer(api="Produce"), True),
    ],
)
def test_a_produce_that_wants_no_answer_gets_a_closed_connection(
    broker: Broker, order: Order, is_stored: bool
) -> None:
    broker.create_topic("t")
    fault = order(broker)
    with Wire(broker.bootstrap) as wire:
        wire.send("produce", 9, _one_batch(b"x", acks=0))
        with pytest.raises(Closed):
            wire.receive_frame()
    assert fault.struck == 1
    assert values(broker) == ([b"x"] if is_stored else [])


@pytest.mark.parametrize(
    "order",
    [
        lambda broker: broker.faults.delay(1, api="Produce"),
        lambda broker: broker.faults.throttle(1, api="Produce"),
        lambda broker: broker.faults.drop_answer(api="Produce", closes=False),
    ],
)
def test_other_faults_leave_a_produce_that_wants_no_answer_alone(broker: Broker, order: Order) -> None:
    broker.create_topic("t")
    order(broker)
    with Wire(broker.bootstrap) as wire:
        wire.send("produce", 9, _one_batch(b"x", acks=0))
        assert produce_on(wire, batch(b"y"))["base_offset"] == 1


def test_every_api_can_be_refused_in_its_newest_and_oldest_version(broker: Broker) -> None:
    """The answers can be decoded, whatever the rows of the request are."""
    fault = broker.faults.error("POLICY_VIOLATION", times=1_000)
    asked = 0
    for api in APIS:
        name = API_NAMES[api.key]
        for version in set(api.versions):
            with Wire(broker.bootstrap) as wire:
                wire.call(name, version, full_request(name, version))
            asked += 1
    assert fault.struck == asked


def test_requests_that_nobody_can_read_are_left_to_the_broker(broker: Broker) -> None:
    """A version that is not served gets Kafka's answer, and a malformed request closes its connection."""
    fault = broker.faults.close(times=99)
    with Wire(broker.bootstrap) as wire:
        wire.send_frame(b"\0\x12\0\x63\0\0\0\1\0\1x\0" + b"\x01\x01\0")
        assert wire.receive_frame()[4:6] == b"\0\x23"
    for frame in (b"\0\0\0\x09\0\0\0\1\0\1x\0\xff\xff", b"\0", b""):
        with Wire(broker.bootstrap) as wire:
            wire.send_frame(frame)
            with pytest.raises(Closed):
                wire.receive_frame()
    assert fault.struck == 0


def test_answers_stay_in_order_when_one_of_several_is_late(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire, broker.faults.delay(100, api="Produce", after=1):
        sent = [wire.send("produce", 9, _one_batch(b"%d" % number)) for number in range(4)]
        offsets = [
            wire.receive("produce", 9, each).fields["responses"][0]["partition_responses"][0]["base_offset"]
            for each in sent
        ]
    assert offsets == [0, 1, 2, 3]


def test_a_client_that_leaves_before_its_late_answer_breaks_nothing(broker: Broker) -> None:
    broker.create_topic("t")
    for _ in range(5):
        with broker.faults.delay(5, api="Produce") as fault, Wire(broker.bootstrap) as wire:
            wire.send("produce", 9, _one_batch(b"x"))
            fault.wait_until_struck()
    with contextlib.closing(Wire(broker.bootstrap)) as wire:
        assert produce_on(wire, batch(b"y"))["base_offset"] == 5
