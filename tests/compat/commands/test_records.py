"""`seqgate produce` and `seqgate consume` against a gateway and against Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.commands.conftest import Peer
from tests.compat.topics import expect_unbroken, stored_batches

Fresh = Callable[[str], str]


@pytest.fixture
def topic(peer: Peer, fresh: Fresh) -> str:
    """A topic for records that are as old as they say, and stay."""
    name = fresh("records")
    peer.run("topics", "create", name, "--partitions", "2", "--set", "retention.ms=-1")
    return name


def consumed(peer: Peer, topic: str, *arguments: str) -> list[dict[str, object]]:
    """Return the records that `seqgate consume --json` prints."""
    return [json.loads(line) for line in peer.run("consume", topic, "--json", *arguments).stdout.splitlines()]


@pytest.mark.tier("test")
def test_lines_with_keys_and_headers(peer: Peer, topic: str) -> None:
    fields = ("--key-separator", ":", "--header", "source=test", "--header", "run=1", "--partition", "1")
    told = peer.run("produce", topic, *fields, stdin=b"a:1\nb:2:3\nc:\n")
    assert told.stdout == f"3 records stored in {topic}: partition 1 from offset 0 to 2.\n"
    shown = peer.run("consume", topic, "--show", "partition,offset,key,value,headers").stdout
    assert shown.splitlines() == [
        "1\t0\ta\t1\tsource=test,run=1",
        "1\t1\tb\t2:3\tsource=test,run=1",
        "1\t2\tc\t\tsource=test,run=1",
    ]
    assert peer.run("consume", topic).stdout == "1\n2:3\n\n"


def test_records_with_one_key_go_to_one_partition_in_order(peer: Peer, topic: str) -> None:
    lines = [str(number) for number in range(1_000)]
    report = peer.json("produce", topic, "--key", "k", stdin="\n".join(lines).encode())
    assert report["records"] == 1_000
    (row,) = report["partitions"]
    assert (row["first_offset"], row["last_offset"], row["records"]) == (0, 999, 1_000)
    assert peer.run("consume", topic).stdout.splitlines() == lines
    expect_unbroken(stored_batches(peer.bootstrap, topic, row["partition"]), 1_000)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(peer: Peer, topic: str, codec: str) -> None:
    sent = "\n".join(f"{codec} {number}" for number in range(50)) + "\n"
    peer.run("produce", topic, "--compression", codec, "--partition", "0", stdin=sent.encode())
    assert peer.run("consume", topic).stdout == sent


@pytest.mark.tier("test")
def test_json_there_and_back(peer: Peer, topic: str, fresh: Fresh) -> None:
    written = [
        {
            "key": "a",
            "value": "plain",
            "headers": {"source": "test", "run": "1"},
            "timestamp": 1_700_000_000_000,
        },
        {"key": "b", "value": {"amount": 5, "of": ["x"]}},
        {"key": "c", "value": None},
        {"key_base64": "/w==", "value_base64": "gIE=", "headers": [{"name": "h", "value_base64": "/w=="}]},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in written).encode()
    assert peer.json("produce", topic, "--from-json", "--partition", "0", stdin=lines)["records"] == 4
    read = consumed(peer, topic)
    assert [record["offset"] for record in read] == [0, 1, 2, 3]
    assert read[0] == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "a",
        "value": "plain",
        "headers": [{"name": "source", "value": "test"}, {"name": "run", "value": "1"}],
    }
    assert read[1]["value"] == '{"amount":5,"of":["x"]}'
    assert read[2]["value"] is None
    assert (read[3]["key_base64"], read[3]["value_base64"]) == ("/w==", "gIE=")
    assert read[3]["headers"] == [{"name": "h", "value_base64": "/w=="}]

    copy = fresh("copy")
    again = peer.run("consume", topic, "--json").stdout.encode()
    assert peer.json("produce", copy, "--from-json", "--create", stdin=again)["records"] == 4
    without_place = [{**record, "topic": copy} for record in read]
    assert consumed(peer, copy) == without_place


def test_a_line_that_is_wrong_is_named_and_those_before_it_are_stored(peer: Peer, topic: str) -> None:
    told = peer.run("produce", topic, "--key-separator", ":", "--partition", "0", stdin=b"a:1\nb\n", code=1)
    assert told.stderr == "seqgate: line 2: no key separator ':' in the line\n"
    assert peer.run("consume", topic, "--show", "key,value").stdout == "a\t1\n"
    wrong = peer.run("produce", topic, "--from-json", stdin=b'{"valeu": 1}\n', code=1).stderr
    assert wrong.startswith("seqgate: line 1: the line is not a record in JSON: ")
    beyond = peer.run("produce", topic, "--partition", "7", stdin=b"x\n", code=1).stderr
    assert beyond == (
        f"seqgate: record 1 is not stored: topic {topic} has no partition 7, only 0 to 1; 0 of the records "
        "before it are stored\n"
    )


def test_a_record_that_is_too_large(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("small")
    peer.run("topics", "create", topic, "--set", "max.message.bytes=1000")
    told = peer.run("produce", topic, stdin=b"small\n" + b"x" * 5_000 + b"\n", code=1).stderr
    assert "is not stored" in told
    assert "(MESSAGE_TOO_LARGE); 1 of the records before it is" in told


def test_where_to_begin_and_to_end(peer: Peer, topic: str) -> None:
    for partition in (0, 1):
        lines = [
            json.dumps({"value": f"{partition}-{number}", "timestamp": 1_700_000_000_000 + number * 1_000})
            for number in range(5)
        ]
        peer.run(
            "produce", topic, "--from-json", "--partition", str(partition), stdin="\n".join(lines).encode()
        )

    def values(*arguments: str) -> list[str]:
        return sorted(peer.run("consume", topic, *arguments).stdout.split())

    assert values("--from", "3") == ["0-3", "0-4", "1-3", "1-4"]
    assert values("--from", "-1") == ["0-4", "1-4"]
    assert values("--from", "end") == []
    assert values("--from", "99") == []
    assert values("--from", "-99", "--partition", "1") == [f"1-{number}" for number in range(5)]
    assert values("--since", "1700000003000") == ["0-3", "0-4", "1-3", "1-4"]
    assert values("--since", "2023-11-14T22:13:24Z") == ["0-4", "1-4"]
    assert values("--since", "1h") == []
    assert len(values("--limit", "3")) == 3


def test_records_of_an_aborted_transaction_are_left_out(peer: Peer, topic: str, fresh: Fresh) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=peer.bootstrap, transactional_id=fresh("id"))
    producer.init_transactions()
    for value, commits in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(30)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    assert peer.run("consume", topic).stdout == "kept\n"
    assert peer.run("consume", topic, "--uncommitted").stdout == "kept\ndropped\n"


def test_null_and_empty_values_differ(peer: Peer, topic: str) -> None:
    peer.run("produce", topic, "--null", "NULL", "--key", "k", stdin=b"NULL\n\n")
    assert [record["value"] for record in consumed(peer, topic)] == [None, ""]
    assert peer.run("consume", topic, "--null", "(null)").stdout == "(null)\n\n"


def test_a_file_and_a_topic_that_does_not_exist(peer: Peer, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\r\ntwo")
    peer.run("produce", topic, "--partition", "0", "--file", str(file))
    assert peer.run("consume", topic).stdout == "one\ntwo\n"
    wrong = f"{topic}x"
    expected = f"seqgate: there is no topic {wrong}; the nearest name is {topic}\n"
    assert peer.run("consume", wrong, code=1).stderr == expected
    advice = expected.replace("\n", "; --create creates it\n")
    assert peer.run("produce", wrong, stdin=b"x\n", code=1).stderr == advice
