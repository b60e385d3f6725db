"""The client's side of logins, against the server's side."""

from __future__ import annotations

import base64

import pytest

from seqgate.gateway.security.sasl.client_login import client_login
from seqgate.gateway.security.sasl.exchange import LoginRefused, Mechanism
from seqgate.gateway.security.sasl.scram import scram_mechanism
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from seqgate.gateway.security.sasl.users_file import FixedUsers, plain_mechanism
from tests.support.scram import credential, no_token

USER, PASSWORD = "a,b=c", "a, pass=word"


def scram(hashing: ScramHash) -> Mechanism:
    made = credential(hashing, PASSWORD)
    return scram_mechanism(
        hashing, lambda _, name: made if name == USER else None, no_token, lambda: b"server"
    )


@pytest.mark.parametrize("hashing", list(ScramHash))
async def test_scram_proves_the_password_and_checks_the_server(hashing: ScramHash) -> None:
    client, server = client_login(hashing.mechanism, USER, PASSWORD), scram(hashing).begin()
    final = client.step((await server.step(client.first())).token)
    assert final is not None
    step = await server.step(final)
    assert step.logged_in is not None
    assert step.logged_in.principal == f"User:{USER}"
    assert client.step(step.token) is None


async def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    client, server = client_login("SCRAM-SHA-256", USER, PASSWORD), scram(ScramHash.SHA_256).begin()
    client.step((await server.step(client.first())).token)
    with pytest.raises(LoginRefused, match="does not prove"):
        client.step(b"v=" + base64.b64encode(b"x" * 32))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"nonsense", "malformed"),
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine1,s=c2FsdA==,i=0", "0 iterations"),
        (b"r=mine1,s=c2FsdA==,i=999999999", "999999999 iterations"),
    ],
)
def test_a_wrong_first_answer_is_refused(answer: bytes, reason: str) -> None:
    client = client_login("SCRAM-SHA-256", USER, PASSWORD, lambda: b"mine")
    with pytest.raises(LoginRefused, match=reason):
        client.step(answer)


async def test_plain_sends_one_message() -> None:
    client = client_login("PLAIN", "u", "p")
    step = await plain_mechanism(FixedUsers({"u": "p"})).begin().step(client.first())
    assert step.logged_in is not None
    assert client.step(step.token) is None
