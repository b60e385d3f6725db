"""The messages of Seqgate that docs/troubleshooting.md quotes are those that Seqgate prints."""

from __future__ import annotations

import re

from tests.support.gateway_process import REPOSITORY

BETWEEN_LITERALS = re.compile(r'"\s*\n\s*f?"')


def test_messages_that_the_page_quotes_are_in_the_code() -> None:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    quoted = re.findall(r"the log says `([^`]+)`|`(nothing is restored[^`]*)`", page)
    parts = [part.strip() for pair in quoted for part in "".join(pair).split("…")]
    assert {"look like TLS", "nothing is restored:"} < set(parts)
    code = "".join(path.read_text() for path in (REPOSITORY / "gateway").rglob("*.py"))
    code = BETWEEN_LITERALS.sub("", code)
    assert [part for part in parts if part not in code] == []
