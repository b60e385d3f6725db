from __future__ import annotations

import base64

import pytest

from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, Mechanism, SaslStep
from seqgate.gateway.security.sasl.scram import MAX_MESSAGE_BYTES, TokenLogin, scram_mechanism
from seqgate.gateway.security.sasl.scram_credential import (
    ScramCredential,
    ScramHash,
    credential_of,
    salt_password,
)
from tests.support.scram import ScramClient, credential

SHA_256, SHA_512 = ScramHash.SHA_256, ScramHash.SHA_512
USERS = {
    (SHA_256, "ann"): credential(SHA_256, "pencil"),
    (SHA_512, "ann"): credential(SHA_512, "pencil"),
    (SHA_256, "a,b=c"): credential(SHA_256, "päss"),
    (SHA_256, "empty"): credential(SHA_256, "pencil", salt=b""),
    (SHA_512, "only512"): credential(SHA_512, "pencil"),
}


def find(hashing: ScramHash, name: str) -> ScramCredential | None:
    return USERS.get((hashing, name))


async def find_token(hashing: ScramHash, token_id: str) -> TokenLogin | None:
    return TokenLogin(credential(hashing, "hmac"), "ann", 7_000) if token_id == "token" else None


def mechanism(hashing: ScramHash = SHA_256) -> Mechanism:
    return scram_mechanism(hashing, find, find_token, lambda: b"server")


async def log_in(client: ScramClient, *, channel: bytes = b"biws", extensions: bytes = b"") -> SaslStep:
    login = mechanism(client.hashing).begin()
    challenge = await login.step(client.first())
    assert challenge.logged_in is None
    return await login.step(client.final(challenge.token, channel=channel, extensions=extensions))


async def test_the_example_of_rfc_7677() -> None:
    hashing, salt = SHA_256, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential_of(hashing, salt_password(hashing, b"pencil", salt, 4096), salt, 4096)
    login = scram_mechanism(
        hashing, lambda *_: known, find_token, lambda: b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    ).begin()
    first = await login.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = await login.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.logged_in == LoggedIn("User:user")


@pytest.mark.parametrize(
    ("hashing", "user", "password"),
    [
        (SHA_256, "ann", "pencil"),
        (SHA_512, "ann", "pencil"),
        (SHA_256, "a,b=c", "päss"),
        (SHA_256, "empty", "pencil"),
    ],
)
async def test_a_user_logs_in_and_the_server_proves_itself(
    hashing: ScramHash, user: str, password: str
) -> None:
    client = ScramClient(hashing, user, password)
    step = await log_in(client)
    assert step.logged_in == LoggedIn(f"User:{user}")
    assert step.token == b"v=" + base64.b64encode(client.server_signature)


def test_names_of_the_mechanisms() -> None:
    assert [mechanism(hashing).name for hashing in ScramHash] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize(
    ("gs2", "extensions", "channel", "last_extensions"),
    [
        (b"n,a=ann,", b"", b"biws", b""),
        (b"n,,", b",unknown=1,x=y=z", b"biws", b""),
        (b"n,,", b",tokenauth=false", b"biws", b""),
        (b"n,,", b"", b"", b""),
        (b"n,,", b"", b"AAAA", b",x=y"),
    ],
)
async def test_what_the_standard_or_kafka_accepts_is_accepted(
    gs2: bytes, extensions: bytes, channel: bytes, last_extensions: bytes
) -> None:
    client = ScramClient(SHA_256, "ann", "pencil", gs2=gs2, extensions=extensions)
    assert (await log_in(client, channel=channel, extensions=last_extensions)).logged_in


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,a=bob,n=ann,r=x",
        b"n,,m=x,n=ann,r=x",
        b"n,,n=ann,r=x,m=y",
        b"n,,n=ann,r=x,a=b,m=y",
        b"n,,n=a=nn,r=x",
        b"n,,n=,r=x",
        b"n,,n=ann,r=",
        b"n,,n=ann,r=x y",
        b"n,,n=ann,r=x,",
        b"n,,n=\xc3\xa4,r=x",
        b"n,,n=a\x00nn,r=x",
        b"n,,n=ann,r=x\n",
        b"n,,n=ann,r=" + b"x" * MAX_MESSAGE_BYTES,
    ],
)
async def test_a_bad_first_message_is_refused(first: bytes) -> None:
    login = mechanism().begin()
    with pytest.raises(LoginRefused):
        await login.step(first)
    with pytest.raises(LoginRefused, match="over"):
        await login.step(ScramClient(SHA_256, "ann", "pencil").first())


async def test_an_unknown_user_is_refused_in_the_words_for_a_wrong_password() -> None:
    with pytest.raises(LoginRefused) as unknown:
        await log_in(ScramClient(SHA_256, "nobody", "pencil"))
    with pytest.raises(LoginRefused) as wrong:
        await log_in(ScramClient(SHA_256, "ann", "pen"))
    with pytest.raises(LoginRefused) as other_mechanism:
        await log_in(ScramClient(SHA_256, "only512", "pencil"))
    assert str(unknown.value) == str(wrong.value) == str(other_mechanism.value)
    assert "pen" not in str(wrong.value)


@pytest.mark.parametrize("nonce", [b"client", b"server", b"clientserve", b"clientserverx", b"other"])
async def test_another_nonce_is_refused(nonce: bytes) -> None:
    login, client = mechanism().begin(), ScramClient(SHA_256, "ann", "pencil")
    challenge = await login.step(client.first())
    with pytest.raises(LoginRefused, match="nonce"):
        await login.step(client.final(challenge.token, nonce=nonce))


@pytest.mark.parametrize(
    "last", [b"", b"c=biws,r=clientserver", b"c=biws,r=clientserver,p=", b"c=biws,r=clientserver,p=AAAA"]
)
async def test_a_login_without_a_proof_is_refused_for_good(last: bytes) -> None:
    login, client = mechanism().begin(), ScramClient(SHA_256, "ann", "pencil")
    challenge = await login.step(client.first())
    with pytest.raises(LoginRefused):
        await login.step(last)
    with pytest.raises(LoginRefused, match="over"):
        await login.step(client.final(challenge.token))


async def test_a_changed_byte_of_the_proof_is_refused() -> None:
    client = ScramClient(SHA_256, "ann", "pencil")
    for position in range(32):
        login = mechanism().begin()
        message = client.final((await login.step(client.first())).token)
        head, proof = message.split(b",p=")
        changed = bytearray(base64.b64decode(proof))
        changed[position] ^= 1
        with pytest.raises(LoginRefused):
            await login.step(head + b",p=" + base64.b64encode(changed))


async def test_a_delegation_token_logs_its_owner_in() -> None:
    step = await log_in(ScramClient(SHA_512, "token", "hmac", extensions=b",tokenauth=TRUE"))
    assert step.logged_in == LoggedIn("User:ann", 7_000, "token")
    for user, extensions in (("ann", b",tokenauth=true"), ("token", b"")):
        with pytest.raises(LoginRefused):
            await log_in(ScramClient(SHA_512, user, "hmac", extensions=extensions))


@pytest.mark.parametrize(("user", "principal"), [("ann", "User:ann"), ("nobody", None)])
async def test_only_a_user_that_exists_is_named(user: str, principal: str | None) -> None:
    with pytest.raises(LoginRefused) as refused:
        await log_in(ScramClient(SHA_256, user, "wrong"))
    assert refused.value.principal == principal


def test_the_text_of_a_credential_has_no_key() -> None:
    assert repr(credential(SHA_256, "pencil")) == "ScramCredential(iterations=4096)"
