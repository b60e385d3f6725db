"""What `seqgate logs` prints."""

from __future__ import annotations

from seqgate.gateway.admin.logs.command import LogLine, _text


def test_no_text_of_a_client_reaches_the_terminal() -> None:
    error = "Traceback:\n  File x\nValueError: \x1b]0;title\x07\x1b[31m\n"
    first, *rest = _text([LogLine(1, 0, "ERROR", "gateway", "a\x1b[31mline", error)])
    assert first.endswith(r"ERROR gateway: a\x1b[31mline")
    assert rest == ["Traceback:", "  File x", r"ValueError: \x1b]0;title\x07\x1b[31m"]
