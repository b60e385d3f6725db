from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.telemetry.subscriptions import (
    MAX_EXPRESSION_CHARACTERS,
    SELECTORS,
    InvalidMatch,
    instance_id_text,
    is_match,
    parse_match,
)
from tests.gateway.telemetry.support import CLIENT, CLIENT_ID, client


@pytest.mark.parametrize(
    ("entry", "matches"),
    [
        ("client_id=loader", True),
        ("client_id=load", False),
        ("client_id=load.*", True),
        ("client_id=LOADER", False),
        (" client_id = loader ", True),
        ("client_id=loader=", True),
        (f"client_instance_id={instance_id_text(CLIENT_ID)}", True),
        (f"client_instance_id={CLIENT_ID}", False),
        ("client_software_name=apache-kafka-(java|c)", True),
        ("client_software_version=4\\..*", True),
        ("client_software_version=3\\..*", False),
        ("client_source_address=10\\..*", True),
        ("client_source_address=127\\..*", False),
        ("client_source_port=401..", True),
        ("client_source_port=4012", False),
    ],
)
def test_an_expression_matches_the_whole_value(entry: str, matches: bool) -> None:
    assert is_match(parse_match([entry]), CLIENT) is matches


def test_every_selector_must_match() -> None:
    patterns = parse_match(["client_id=loader", "client_software_version=3.*"])
    assert not is_match(patterns, CLIENT)
    assert is_match(patterns, client(client_software_version="3.9.0"))


def test_no_selector_matches_every_client() -> None:
    assert is_match(parse_match([]), CLIENT)


def test_the_last_entry_of_a_selector_counts() -> None:
    assert is_match(parse_match(["client_id=other", "client_id=loader"]), CLIENT)
    assert not is_match(parse_match(["client_id=loader", "client_id=other"]), CLIENT)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "client_id",
        "client_id=",
        "=loader",
        "client_id==loader",
        "client_id=a=b",
        "CLIENT_ID=loader",
        "principal=loader",
        "client_id=[",
        "client_id=(?=l)oader",
        "client_id=(a)\\1",
        "client_id=" + "a" * (MAX_EXPRESSION_CHARACTERS + 1),
    ],
)
def test_a_malformed_entry_is_refused(entry: str) -> None:
    with pytest.raises(InvalidMatch, match="Illegal client matching pattern"):
        parse_match([entry])


@given(st.sampled_from(sorted(SELECTORS)), st.text(max_size=60))
def test_any_text_is_parsed_or_refused(selector: str, text: str) -> None:
    try:
        patterns = parse_match([f"{selector}={text}"])
    except InvalidMatch:
        return
    assert set(patterns) == {selector}
    is_match(patterns, CLIENT)
