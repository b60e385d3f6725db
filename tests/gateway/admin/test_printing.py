"""The commands print tables that fit the terminal, and JSON."""

from __future__ import annotations

import io
import sys

import pytest

from seqgate.gateway.admin.printing import print_json, print_table
from seqgate.gateway.admin.tables import Column, number, shown


def test_json_keeps_64_bits(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"id": 2**63 - 1, "left": None})
    assert capsys.readouterr().out == '{\n  "id": 9223372036854775807,\n  "left": null\n}\n'


def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard output be a terminal of 40 columns."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_numbers_are_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_terminal(monkeypatch)
    print_table((Column("topic"), Column("id", number)), [("t" * 100, str(2**62))])
    out = capsys.readouterr().out
    assert str(2**62) in out
    assert max(map(len, out.splitlines())) <= 40


def test_a_row_is_one_line_where_no_terminal_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(
        (Column("group"), Column("parti-\ntion", number), Column("log\nend", number)),
        [("g" * 100, "3", "12"), ("billing", "0", "1")],
    )
    heading, rule, first, second = lines = capsys.readouterr().out.splitlines()
    assert not any(line.endswith(" ") for line in lines)
    assert heading.split() == ["group", "partition", "log", "end"]
    assert set(rule) == {"─"}
    assert first.split() == ["g" * 100, "3", "12"]
    assert second.split() == ["billing", "0", "1"]


def test_an_output_that_is_not_utf_8_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", io.TextIOWrapper(written, "latin-1", write_through=True))
        print_table((Column("topic"),), [("orders",)])
        print_json({"client": "café"})  # latin-1 has the letter, but JSON is UTF-8
        assert written.getvalue() == b'topic\n------\norders\n{\n  "client": "caf\\u00e9"\n}\n'


def test_no_column_is_left_out_where_all_of_them_are_too_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    headings = ("topic", "id", "other\nid", "age", "state")
    numbers = {"id", "other\nid", "age"}
    columns = [Column(heading, number if heading in numbers else shown) for heading in headings]
    print_table(columns, [("orders-eu", str(2**62), str(2**61), "3 min 36 s", "running")])
    out = capsys.readouterr().out
    for text in ("topic", "orders-e", str(2**62), str(2**61), "3 min 36 s", "state", "running"):
        assert text in out
