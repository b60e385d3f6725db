"""Records are printed as lines of text and of JSON."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from seqgate.gateway.admin.consume import _printer, json_line, parse_fields, text_line
from seqgate.gateway.cli import parse

READ = SimpleNamespace(
    partition=1, offset=7, timestamp=1_000, key=None, value=b"v\xff", headers=[("a", b"1"), ("b", None)]
)


def test_bytes_that_are_no_text_are_base64_in_json() -> None:
    assert json.loads(json_line(READ, "t")) == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_000,
        "key": None,
        "value_base64": "dv8=",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


@pytest.mark.parametrize("option", ["--show=key", "--separator=,", "--null=none"])
def test_json_has_no_fields_to_choose(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = parse(["consume", "t", "--json", *option.split("=")])
    assert found is not None
    command, given = found
    with pytest.raises(SystemExit) as ended:
        command(**given)
    assert ended.value.code == 2
    assert f"{option.partition('=')[0]} is for lines of text" in capsys.readouterr().err


def test_text_has_the_bytes_as_they_are() -> None:
    fields = parse_fields("topic, partition,offset,timestamp,key,value,headers")
    assert text_line(READ, "t", fields, b"|", b"~") == b"t|1|7|1000|~|v\xff|a=1,b=~\n"
    with pytest.raises(ValueError, match="'vlaue' is not one of topic, partition"):
        parse_fields("key,vlaue")


@pytest.mark.parametrize("separator", ["", ", "])
def test_a_terminal_gets_no_commands(separator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    record = SimpleNamespace(**{**vars(READ), "key": b"\x1b[2J", "value": "é\x7f\x9b2J\U000e0001".encode()})
    lines = _printer("t", "key,value", separator, None, as_json=False)
    assert lines(record).decode() == f"\\x1b[2J{separator}é\\x7f\\x9b2J\\U000e0001\n"
    line = _printer("t", None, None, None, as_json=True)(record)
    assert line.decode().removesuffix("\n").isprintable()
    assert json.loads(line) == json.loads(json_line(record, "t"))
