"""Lines of text and of JSON are parsed as records to send."""

from __future__ import annotations

import json

import pytest

from seqgate.gateway.admin.produce import LineFormat, ProducedRecord, parse_json

PLAIN = LineFormat()


def test_a_line_is_a_value() -> None:
    assert PLAIN.parse(b"a:b") == ProducedRecord(b"a:b")
    assert PLAIN.parse(b"") == ProducedRecord(b"")


def test_what_every_line_has() -> None:
    every = LineFormat(key=b"k", headers=(("h", b"1"),), partition=3, null=b"-")
    assert every.parse(b"-") == ProducedRecord(None, b"k", [("h", b"1")], 3)


def test_a_key_ends_at_the_first_separator() -> None:
    keyed = LineFormat(key_separator=b"::")
    assert keyed.parse(b"k::v::w") == ProducedRecord(b"v::w", b"k")
    with pytest.raises(ValueError, match="no key separator '::' in the line"):
        keyed.parse(b"k:v")


def test_json_fields() -> None:
    line = {"value": [1], "key": "k", "headers": {"h": "1"}, "partition": 2, "timestamp": 5, "topic": "t"}
    record = ProducedRecord(b"[1]", b"k", [("h", b"1")], None, 5)
    assert parse_json(json.dumps(line).encode(), PLAIN) == record
    kept = parse_json(json.dumps(line).encode(), LineFormat(keeps_partitions=True))
    assert kept.partition == 2
    fallen_back = parse_json(b'{"value": "v"}', LineFormat(key=b"k", headers=(("h", b"1"),), partition=4))
    assert fallen_back == ProducedRecord(b"v", b"k", [("h", b"1")], 4)
    assert parse_json(b"{}", PLAIN) == ProducedRecord(None)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not a record in JSON"),
        (b"\xff", "not a record in JSON"),
        (b"[]", "not a record in JSON"),
        (b'{"valeu": "x"}', "not a record in JSON: Object contains unknown field `valeu`"),
        (b'{"key": "a", "key_base64": "YQ=="}', "key and key_base64 exclude each other"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"headers": {"h": null}}', "the header h is null"),
        (b'{"timestamp": 9223372036854775808}', "has more than 64 bits"),
    ],
)
def test_json_that_is_no_record(line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_json(line, PLAIN)
