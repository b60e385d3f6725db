"""The records of a topic: browsed, filtered, followed, shown one by one, downloaded and produced."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from kafka import KafkaProducer

from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking import records as asking
from seqgate.gateway.console.asking.records import (
    ANYWHERE,
    FetchLimits,
    From,
    RecordPage,
    Wish,
    read_positions,
    record_filter,
    record_page,
    written_positions,
)
from seqgate.gateway.console.asking.topics import topic_places
from seqgate.gateway.console.pages import records as pages
from seqgate.gateway.testing import Broker
from tests.gateway.console.test_contents import ORDER, avro_bytes, descriptors
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

HOSTILE = b"<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def topics(shared_gateway: GatewayProcess) -> Callable[..., str]:
    def create(name: str, partitions: int = 1, *settings: str) -> str:
        options = [word for setting in settings for word in ("--set", setting)]
        seqgate(
            "topics",
            "create",
            name,
            "--partitions",
            str(partitions),
            *options,
            "--bootstrap",
            shared_gateway.bootstrap,
        )
        return name

    return create


@pytest.fixture(scope="module")
def producer(shared_gateway: GatewayProcess) -> Iterator[KafkaProducer]:
    with_large = {"max_request_size": 100 << 20, "linger_ms": 0}
    made = KafkaProducer(bootstrap_servers=[shared_gateway.bootstrap], **with_large)
    yield made
    made.close()


def numbered(producer: KafkaProducer, topic: str, count: int, partition: int = 0) -> None:
    for number in range(count):
        producer.send(
            topic,
            f"value {number}".encode(),
            key=f"key {number}".encode(),
            partition=partition,
            timestamp_ms=1_000_000 + number,
        )
    producer.flush()


def test_the_newest_come_first_and_older_ones_follow(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    numbered(producer, topics("rp-newest"), 120)
    page = console.page("/records/rp-newest")
    assert page.index("value 119") < page.index("value 70")
    assert "value 69<" not in page
    older = console.page("/records/rp-newest?from=before&at=0:70")
    assert older.index("value 69") < older.index("value 20")
    assert "at=0%3A70" in older
    assert "Older</a>" not in console.page("/records/rp-newest?from=before&at=0:20")


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("from=oldest", 0, 49),
        ("from=offset&offset=60", 60, 109),
        ("from=time&time=1000100", 100, 119),
        ("from=after&at=0:110", 110, 119),
        ("from=oldest&rows=100", 0, 99),
    ],
)
def test_records_follow_an_offset_or_a_time(
    console: ConsoleClient, producer: KafkaProducer, query: str, first: int, last: int
) -> None:
    text = text_of(console.page(f"/records/rp-newest?{query}"))
    assert f"value {first} " in text
    assert f"value {last} " in text
    assert f"value {last + 1} " not in text


def test_several_partitions_come_together_by_time(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    numbered(producer, topics("rp-two", 2), 30, partition=0)
    numbered(producer, "rp-two", 30, partition=1)
    page = console.page("/records/rp-two?rows=20")
    assert page.count("value 29") == 2
    assert "value 19<" not in page
    assert "0%3A20%2C1%3A20" in page
    assert "value 29" not in console.page("/records/rp-two?rows=20&from=before&at=0:20,1:20")
    assert console.page("/records/rp-two?partition=1").count("value 29") == 1
    assert "has no partition 7" in text_of(console.page("/records/rp-two?partition=7"))


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("filter=VALUE+11", 11),
        ("filter=value+%5Cd%24&regex=yes", 10),
        ("filter=key+5&in=key", 11),
        ("filter=key+5&in=value", 0),
    ],
)
def test_a_filter_finds_text(
    console: ConsoleClient, producer: KafkaProducer, query: str, matches: int
) -> None:
    text = text_of(console.page(f"/records/rp-newest?{query}&rows=500&whole=yes"))
    assert len(re.findall(r"key \d+ value \d+", text)) == matches
    assert "of 120 searched" in text


@pytest.mark.parametrize("start", ["from=newest", "from=oldest"])
def test_a_search_comes_in_steps(console: ConsoleClient, producer: KafkaProducer, start: str) -> None:
    page = console.page(f"/records/rp-newest?{start}&filter=value+1&rows=10")
    assert "value 1" not in page.partition("<tbody")[2]
    assert "Stop" in text_of(page)
    hits, searched, place = [], 0, start
    while place:
        step = console.data(f"/api/records/rp-newest/search?filter=value+1&rows=10&{place}")
        hits += [row["value"] for row in step["rows"]]
        searched += step["searched"]
        place = "" if step["at"] is None else f"from={step['from']}&at={step['at']}"
    assert sorted(hits) == sorted(f"value {number}" for number in range(120) if str(number)[0] == "1")
    assert (hits[0] == "value 119") == (start == "from=newest")
    assert step["left"] == 0
    assert searched >= 120


def paged(cluster: Cluster, topic: str, text: str) -> list[tuple[int, int]]:
    """Return partition and offset of all records that a search finds from the newest on."""
    wanted = record_filter(text, ANYWHERE, is_regex=False, markers=False)
    found, wish = [], Wish(rows=500, is_step=True)
    while True:
        page = record_page(cluster, topic_places(cluster, topic), wish, wanted)
        found += [(kept.record.partition, kept.record.offset) for kept in page.records]
        if page.following is None:
            return found
        wish = replace(wish, start=From.BEFORE, positions=page.following)


def test_a_search_that_is_stopped_begins_later(
    shared_gateway: GatewayProcess, topics: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_BYTES", 10_000)
    with_gzip = {"compression_type": "gzip", "linger_ms": 60_000, "batch_size": 1 << 20}
    producer = KafkaProducer(bootstrap_servers=[shared_gateway.bootstrap], **with_gzip)
    topic = topics("rp-stopped")
    for _ in range(40):
        producer.send(topic, b"x" * 1_000)
    producer.close()
    with connected(parse_addresses(shared_gateway.bootstrap)) as cluster:
        assert paged(cluster, "rp-stopped", "x") == [(0, offset) for offset in range(39, -1, -1)]


def test_a_full_answer_leaves_no_partition_out(
    shared_gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "FetchLimits", lambda: FetchLimits(answer_bytes=1, partition_bytes=1))
    with connected(parse_addresses(shared_gateway.bootstrap)) as cluster:
        found = paged(cluster, "rp-two", "value")
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(30)]


def test_a_search_that_can_not_read_all_gives_no_file(
    console: ConsoleClient, producer: KafkaProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "crc_matches", lambda header, _: header.base_offset > 0)
    refused = console.data("/api/records/rp-newest/download?format=csv&filter=value", status=400)
    assert "would lack records: offset 0 of partition 0 is unreadable" in refused["error"]


def test_a_committed_search_ends_before_an_open_transaction(
    console: ConsoleClient,
    topics: Callable[..., str],
    shared_gateway: GatewayProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(KafkaProducer(bootstrap_servers=shared_gateway.bootstrap)) as plain:
        numbered(plain, topics("rp-open"), 1)
    reads = iter(range(3))

    def read(*asked: Any) -> RecordPage:
        assert next(reads, None) is not None, "reads on for ever"
        return record_page(*asked)

    monkeypatch.setattr(pages, "record_page", read)
    producer = KafkaProducer(bootstrap_servers=shared_gateway.bootstrap, transactional_id="rp-open")
    with closing(producer):
        producer.init_transactions()
        producer.begin_transaction()
        numbered(producer, "rp-open", 1)
        found = console.data(
            "/api/records/rp-open/download?format=json&filter=value&committed=yes&from=oldest"
        )
        producer.abort_transaction()
    assert [row["offset"] for row in found] == [0]


def test_records_are_downloaded(
    console: ConsoleClient,
    topics: Callable[..., str],
    producer: KafkaProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"/api/records/{topics('rp-files')}/download"
    producer.send("rp-files", b'{"a": 1}', key=None, headers=[("trace", b"7")])
    producer.send("rp-files", b"\xff", key=b"k,\n").get(10)
    rows = console.data(f"{path}?format=json&from=oldest")
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, None, '{"a": 1}'),
        (1, "k,\n", "/w=="),
    ]
    assert rows[0]["headers"] == [{"name": "trace", "value": "7"}]
    assert rows[1]["value_encoding"] == "base64"
    answer = console.http.get(f"{path}?format=csv&from=oldest&rows=1")
    assert [row["value"] for row in csv.DictReader(io.StringIO(answer.text))] == ['{"a": 1}']
    assert 'filename="rp-files.csv"' in answer.headers["content-disposition"]
    found = console.data("/api/records/rp-newest/download?format=json&rows=1&filter=value+1")
    assert len(found) == 31
    assert console.data(f"{path}?format=json&filter=nothing") == []
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in console.data(f"{path}?format=parquet", status=400)["error"]
    assert "format must be one of" in console.data(f"{path}?format=x", status=400)["error"]


def test_a_wrong_filter_is_told(console: ConsoleClient, producer: KafkaProducer) -> None:
    assert "can't be used" in text_of(console.page("/records/rp-newest?filter=(&regex=yes"))
    assert "from must be one of" in text_of(console.page("/records/rp-newest?from=x"))
    assert "give a time" in text_of(console.page("/records/rp-newest?from=time"))
    assert "is no position" in text_of(console.page("/records/rp-newest?from=after&at=x"))


def test_hostile_contents_are_shown_as_text(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    producer.send(topics("rp-hostile"), HOSTILE, key=HOSTILE, headers=[(HOSTILE.decode(), HOSTILE)]).get(10)
    for path in (
        "/records/rp-hostile",
        "/records/rp-hostile/0/0",
        "/records/rp-hostile?filter=%3Cscript%3E&whole=yes",
    ):
        page = console.page(path).partition("<main")[2]
        assert "<script" not in page
        assert "<img" not in page
        assert "&lt;script&gt;" in page


def test_null_binary_and_large_contents(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    topic = topics("rp-odd", 1, "max.message.bytes=67108864")
    producer.send(topic, None, key=b"\x00\xff\xfe")
    producer.send(topic, b"", key=None)
    producer.send(topic, b"x" * (50 << 20)).get(30)
    text = text_of(console.page(f"/records/{topic}"))
    assert "50 MiB" in text
    assert "00 ff fe" in text_of(console.page(f"/records/{topic}?from=oldest"))
    assert "beginning of 50 MiB" in text_of(console.page(f"/records/{topic}/0/2"))
    assert "Value Null" in text_of(console.page(f"/records/{topic}/0/0"))
    whole = console.http.get(f"/records/{topic}/0/2/value")
    assert len(whole.content) == 50 << 20
    assert whole.headers["content-disposition"] == 'attachment; filename="rp-odd-0-2-value.bin"'
    assert "is null" in console.data(f"/records/{topic}/0/0/value", status=400)["error"]
    assert "no secrets" in console.data(f"/records/{topic}/0/0/secrets", status=400)["error"]


def test_one_record_has_its_producer_and_sequence(console: ConsoleClient, producer: KafkaProducer) -> None:
    text = text_of(console.page("/records/rp-newest/0/7"))
    assert "value 7" in text
    assert "Offset after" in text
    assert "holds no record" in text_of(console.page("/records/rp-newest/0/9999"))


def test_a_schema_shows_avro_and_protobuf(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    producer.send(topics("rp-schema"), avro_bytes({"id": 77, "note": "hello"})).get(10)
    page = console.send("/records/rp-schema/schema", {"kind": "avro", "text": json.dumps(ORDER)})
    assert '{"id":77,"note":"hello"}' in text_of(page)
    assert "shop.Order" in page
    producer.send("rp-schema", b"\x08\x4d").get(10)
    file = {"file": ("orders.pb", descriptors(), "application/octet-stream")}
    page = console.send(
        "/records/rp-schema/schema", {"kind": "protobuf", "message": "shop.Order"}, files=file
    )
    assert '{"id":"77"}' in text_of(page)
    wrong = console.send("/records/rp-schema/schema", {"kind": "avro", "text": "{}"}, status=400)
    assert "no Avro schema" in text_of(wrong)
    lost = console.page(f"/records/rp-schema?value_form=schema&value_schema={'0' * 32}")
    assert "no longer has the schema" in text_of(lost)


def test_a_record_is_produced_after_a_question(console: ConsoleClient, topics: Callable[..., str]) -> None:
    topic = topics("rp-produced")
    fields = {
        "key_is": "text",
        "key": "k",
        "value_is": "text",
        "value": "line 1\nline 2",
        "headers": "a: 1\nb: 2",
        "partition": "0",
    }
    page = console.confirmed(f"/records/{topic}/produce", fields)
    assert "stored in partition 0 at offset 0" in text_of(page)
    assert "line 1 line 2" in text_of(page)
    encoded = base64.b64encode(b"\x00\x01").decode()
    page = console.confirmed(
        f"/records/{topic}/produce", {"key_is": "null", "value_is": "base64", "value": encoded}
    )
    assert "00 01" in text_of(page)
    page = console.confirmed(f"/records/{topic}/produce", {"key_is": "text", "key": "k", "value_is": "null"})
    assert "Value Null" in text_of(page)
    wrong = {"value_is": "base64", "value": "%"}
    assert "not base64" in text_of(console.send(f"/records/{topic}/produce", wrong, status=400))
    forgotten = {"key": "k", "value_is": "text", "value": "x"}
    assert "choose text" in text_of(console.send(f"/records/{topic}/produce", forgotten, status=400))
    missing = {"value_is": "text", "value": "x", "partition": "9", "confirmed": "yes"}
    assert "no partition 9" in text_of(console.send(f"/records/{topic}/produce", missing, status=400))


def test_the_tail_brings_what_arrives(
    console: ConsoleClient, topics: Callable[..., str], producer: KafkaProducer
) -> None:
    numbered(producer, topics("rp-tail", 2), 3)
    begin = console.data("/api/records/rp-tail/tail?at=")
    assert (begin["rows"], begin["at"]) == ([], "0:3,1:0")
    producer.send("rp-tail", HOSTILE, partition=1).get(10)
    found = console.data(f"/api/records/rp-tail/tail?at={begin['at']}")
    assert [(row["partition"], row["offset"], row["value"]) for row in found["rows"]] == [
        (1, "0", HOSTILE.decode())
    ]
    assert found["at"] == "0:3,1:1"
    assert console.data(f"/api/records/rp-tail/tail?at={found['at']}")["rows"] == []


def test_partitions_that_are_not_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "Records of 1 partition without a leader are missing: 7."
    with Broker() as broker, console_client(broker.bootstrap) as console:
        broker.create_topic("wide", 40)
        with broker.faults.partition_offline("wide", 7):
            for place in ("", "?from=live"):
                text = text_of(console.page(f"/records/wide{place}"))
                assert missing in text
                assert "leaves out 7." in text
            step = console.data("/api/records/wide/search?filter=x")
            assert (step["problems"], step["left_out"]) == ([missing], 7)
            assert console.data("/api/records/wide/tail?at=7:0")["problems"] == [missing]
            refused = console.data("/api/records/wide/download?format=csv&filter=x", status=400)
            assert missing in refused["error"]
            question = text_of(console.send("/topics/wide/delete", {}))
            assert "40 partitions with an unknown number of records" in question
        refused = console.data("/api/records/wide/download?format=csv&filter=x", status=400)
        assert refused["error"] == "the file would lack records: 8 partitions left out; choose one partition"
        monkeypatch.setattr(Cluster, "spans", lambda *_: {})
        assert "are not known: the leader of a partition" in text_of(console.page("/records/wide"))


def test_an_empty_topic_says_what_to_do(console: ConsoleClient, topics: Callable[..., str]) -> None:
    assert "Produce a record" in text_of(console.page(f"/records/{topics('rp-empty')}"))


def test_positions_are_read_as_they_are_written() -> None:
    positions = {0: 5, 12: 7_000_000_000}
    assert read_positions(written_positions(positions)) == positions
    for text in ("a", "1:", ":1", "1:-1", "1:2:3", f"1:{'9' * 30}"):
        with pytest.raises(ControlError):
            read_positions(text)
