from __future__ import annotations

import socket
import struct

import pytest

from seqgate.spark_kafka_compat.batch_reader import BatchRow, parse_headers, plan_splits
from seqgate.spark_kafka_compat.session import EndpointError
from seqgate.spark_kafka_compat.wire import parse_bootstrap

HEADER = struct.Struct(">qiiBIhiqqqhii")


def encoded(base_offset: int, records: int, *, attributes: int = 0, magic: int = 2, body: int = 40) -> bytes:
    header = HEADER.pack(base_offset, 49 + body, 0, magic, 0, attributes, records - 1, 5, 6, 7, 1, 9, records)
    return header + bytes(body)


def test_batch_headers_are_parsed() -> None:
    first, second = parse_headers(encoded(10, 3) + encoded(13, 2, attributes=0x30), "t", 4)
    assert first == BatchRow("t", 4, 10, 12, 7, 1, 9, 3, False)
    assert (second.base_offset, second.is_control) == (13, True)
    assert second.sequence_count == 2


@pytest.mark.parametrize(("kept", "rows"), [(61 + 40 + 60, 1), (61 + 40 + 61, 2), (30, 0), (0, 0)])
def test_a_cut_answer_yields_its_whole_headers(kept: int, rows: int) -> None:
    assert len(list(parse_headers((encoded(0, 1) + encoded(1, 1))[:kept], "t", 0))) == rows


def test_messages_of_the_old_format_are_refused() -> None:
    with pytest.raises(EndpointError, match="old format 1"):
        list(parse_headers(encoded(0, 1, magic=1), "t", 0))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("broker", [("broker", 9092)]),
        ("[::1]:9094", [("::1", 9094)]),
    ],
)
def test_bootstrap_addresses_are_parsed(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", "a:b", ":1", ",", "a:65536"])
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(EndpointError):
        parse_bootstrap(text)


def test_a_name_that_no_host_can_have_is_refused() -> None:
    with pytest.raises(EndpointError, match="is not a host name") as raised:
        plan_splits(f"{'a' * 64}.test:1", ["t"], 1_000_000)
    assert not raised.value.retriable


def test_an_unreachable_endpoint_is_a_retriable_error() -> None:
    with pytest.raises(EndpointError, match=r"Nothing answers at 127\.0\.0\.1:1 ") as raised:
        plan_splits("127.0.0.1:1", ["t"], 1_000_000)
    assert raised.value.retriable


def test_an_endpoint_that_does_not_speak_kafka_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        peer = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()
        peer.close()
        server.close()
        with pytest.raises(EndpointError):
            plan_splits(f"127.0.0.1:{port}", ["t"], 1_000_000)
