from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.config.sasl import LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("line", "users"),
    [
        (f'{PLAIN} required username="broker" password="x" user_alice="secret" user_bob="b";', "alice bob"),
        (f"{PLAIN} required\n  user_alice='secret'\n  user_bob = b;", "alice bob"),
        (f'{PLAIN} Required "user_alice"="secret";  ', "alice"),
        (f"{PLAIN} required;", ""),
    ],
)
def test_a_line_names_its_users(line: str, users: str) -> None:
    module = parse_jaas(line)
    assert module.name == "PlainLoginModule"
    assert module.users == {name: {"alice": "secret", "bob": "b"}[name] for name in users.split()}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_password_survives_its_quotes(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{PLAIN} required user_a="{quoted}" b=c;') == LoginModule(
        "PlainLoginModule", {"user_a": password, "b": "c"}
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "must have the form MODULE required"),
        (f'{PLAIN} required user_a="hunter2"', "end with a semicolon"),
        (f'{PLAIN} needed user_a="hunter2";', "must be one of optional, required, requisite, sufficient"),
        (f'{PLAIN} required user_a "hunter2";', "must have the form NAME="),
        (f'{PLAIN} required user_a="hunter2" b;', "must have the form NAME="),
        (f'{PLAIN} required user_a="hunter2;', "without a closing one"),
        (f'{PLAIN} required user_a="hunter2"; {PLAIN} required;', "remove the second one"),
        (f'= {PLAIN} user_a="hunter2";', "must be one of"),
    ],
)
def test_a_malformed_line_is_refused_without_its_secrets(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_jaas(line)
    assert "hunter2" not in str(refused.value)
