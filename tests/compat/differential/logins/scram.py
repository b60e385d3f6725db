"""SCRAM logins: right and wrong passwords, malformed messages, other nonces and extensions."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.compat.differential.logins.visit import (
    Table,
    Visit,
    authenticate,
    is_open,
    is_served,
    send_bare,
    shake,
)
from tests.compat.differential.peer import Peer
from tests.support.scram import NONCE, ScramClient
from tests.support.wire import Answer

TABLE = Table()
PASSWORD = "open, sesame = päss"
OTHER = {ScramHash.SHA_256: ScramHash.SHA_512, ScramHash.SHA_512: ScramHash.SHA_256}
Change = Callable[[bytes], bytes]


def _server_first(message: bytes) -> Any:
    """Return the server's first message without its part of the nonce, so that both endpoints have the same
    text.
    """
    if not message:
        return message
    values = dict(part.split(b"=", 1) for part in message.split(b","))
    nonce = values.pop(b"r")
    return {**values, "nonce": nonce.startswith(NONCE) and len(nonce) >= len(NONCE) + 16}


def _begin(visit: Visit, hashing: ScramHash, user: str, **more: Any) -> tuple[Peer, ScramClient, bytes]:
    """Return a connection after the first message, its client, and the server's answer."""
    peer, client = visit.client(), ScramClient(hashing, user, PASSWORD, **more)
    shake(peer, hashing.mechanism)
    return peer, client, authenticate(peer, client.first(), show=_server_first)


def _finish(peer: Peer, client: ScramClient, last: bytes) -> None:
    """Send the last message, and record whether the server proves that it knows the password."""

    def proof(message: bytes) -> Any:
        return message and message == b"v=" + base64.b64encode(client.server_signature)

    if authenticate(peer, last, show=proof):
        is_served(peer)
    else:
        is_open(peer)


@TABLE.add_for_each({hashing.mechanism: hashing for hashing in ScramHash})
def right_and_wrong(visit: Visit, hashing: ScramHash) -> None:
    user = visit.add_scram_user("ann", PASSWORD, [hashing])
    peer, client, answer = _begin(visit, hashing, user)
    _finish(peer, client, client.final(answer))
    peer, client, answer = _begin(visit, hashing, user)
    client.password = "wrong"
    _finish(peer, client, client.final(answer))
    for name, mechanism in ((visit.name("nobody"), hashing), (user.upper(), hashing), (user, OTHER[hashing])):
        peer, _, _ = _begin(visit, mechanism, name)
        is_open(peer)


@TABLE.add
def both_hashes(visit: Visit) -> None:
    user = visit.add_scram_user("ann", PASSWORD, list(ScramHash))
    for hashing in ScramHash:
        peer, client, answer = _begin(visit, hashing, user)
        _finish(peer, client, client.final(answer))


@TABLE.add
def name_with_comma(visit: Visit) -> None:
    user = visit.add_scram_user("a,b=c", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    _finish(peer, client, client.final(answer))


FIRSTS: dict[str, Change] = {
    "empty": lambda _: b"",
    "no gs2 header": lambda bare: bare,
    "channel binding": lambda bare: b"y,," + bare,
    "bound": lambda bare: b"p=tls-unique,," + bare,
    "user": lambda bare: b"n,a=" + bare.split(b",")[0][2:] + b"," + bare,
    "other user": lambda bare: b"n,a=other," + bare,
    "no nonce": lambda bare: b"n,," + bare.split(b",")[0],
    "empty nonce": lambda bare: b"n,," + bare.split(b",")[0] + b",r=",
    "no user": lambda _: b"n,,n=,r=client",
    "nonce first": lambda bare: b"n,," + b",".join(reversed(bare.split(b","))),
    "mandatory extension": lambda bare: b"n,,m=x," + bare,
    "extension": lambda bare: b"n,," + bare + b",x=y",
    "extension m": lambda bare: b"n,," + bare + b",m=y",
    "empty extension": lambda bare: b"n,," + bare + b",x=",
    "extension with digits": lambda bare: b"n,," + bare + b",x1=y",
    "comma behind": lambda bare: b"n,," + bare + b",",
    "unknown escape": lambda bare: b"n,,n=a=2D,r=client",
    "not ASCII": lambda bare: b"n,,n=\xc3\xa4,r=client",
    "not UTF-8": lambda bare: b"n,,n=\xff,r=client",
    "nonce not ASCII": lambda bare: b"n,," + bare + b"\xc3\xa4",
    "nonce with space": lambda bare: b"n,," + bare + b" x",
    "zero": lambda bare: b"n,," + bare + b"\0",
    "upper case": lambda bare: b"N,," + bare,
    "token": lambda bare: b"n,," + bare + b",tokenauth=true",
    "token in capitals": lambda bare: b"n,," + bare + b",tokenauth=TRUE",
    "no token": lambda bare: b"n,," + bare + b",tokenauth=false",
    "token twice": lambda bare: b"n,," + bare + b",tokenauth=true,tokenauth=false",
    "long": lambda bare: b"n,," + bare + b"x" * 4_000,
}


@TABLE.add_for_each(FIRSTS)
def first(visit: Visit, change: Change) -> None:
    """Send an odd first message of a user with a password."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer = visit.client()
    shake(peer, "SCRAM-SHA-256")
    authenticate(peer, change(ScramClient(ScramHash.SHA_256, user, PASSWORD).bare), show=_server_first)
    is_open(peer)


def _proof_replaced(by: bytes) -> Change:
    return lambda last: last.rpartition(b",p=")[0] + b",p=" + by


FINALS: dict[str, Change] = {
    "empty": lambda _: b"",
    "nonsense": lambda _: b"nonsense",
    "no proof": lambda last: last.rpartition(b",p=")[0],
    "empty proof": _proof_replaced(b""),
    "short proof": _proof_replaced(base64.b64encode(b"x" * 20)),
    "long proof": _proof_replaced(base64.b64encode(b"x" * 64)),
    "wrong proof": _proof_replaced(base64.b64encode(b"x" * 32)),
    "proof not base64": _proof_replaced(b"!!!!"),
    "proof without padding": lambda last: last.rstrip(b"="),
    "more behind": lambda last: last + b",x=y",
    "zero behind": lambda last: last + b"\0",
    "no channel": lambda last: last.partition(b",")[2],
    "channel not base64": lambda last: b"c=!!!!," + last.partition(b",")[2],
    "parts in another order": lambda last: b",".join(
        (last.split(b",")[1], last.split(b",")[0], last.split(b",")[2])
    ),
    "first message again": lambda _: b"n,,n=ann,r=client",
}


@TABLE.add_for_each(FINALS)
def last(visit: Visit, change: Change) -> None:
    """Send an unusual client-final message of SCRAM."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    _finish(peer, client, change(client.final(answer)))


SIGNED: dict[str, dict[str, Any]] = {
    "another channel": {"channel": base64.b64encode(b"y,,")},
    "channel of nonsense": {"channel": base64.b64encode(b"nonsense")},
    "empty channel": {"channel": b""},
    "extension": {"extensions": b",x=y"},
    "extension m": {"extensions": b",m=y"},
    "empty nonce": {"nonce": b""},
    "own nonce": {"nonce": NONCE},
    "another nonce": {"nonce": NONCE + b"x" * 30},
}


@TABLE.add_for_each(SIGNED)
def signed_otherwise(visit: Visit, parts: dict[str, Any]) -> None:
    """Send a last message with other parts, for which the proof is right."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    _finish(peer, client, client.final(answer, **parts))


@TABLE.add_for_each({"cut off": lambda nonce: nonce[:-1], "longer": lambda nonce: nonce + b"x"})
def nearly_the_nonce(visit: Visit, change: Change) -> None:
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    nonce = answer.split(b",")[0][2:]
    _finish(peer, client, client.final(answer, nonce=change(nonce)))


@TABLE.add
def message_of_another_login(visit: Visit) -> None:
    """Send the right last message of one connection over another."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    other, _, _ = _begin(visit, ScramHash.SHA_256, user)
    message = client.final(answer)
    _finish(other, client, message)
    _finish(peer, client, message)


@TABLE.add
def token_behind_the_last_message(visit: Visit) -> None:
    """Send the last message twice: the second one comes after the login is over."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    message = client.final(answer)
    authenticate(peer, message, show=bool)
    authenticate(peer, message)
    is_served(peer)


@TABLE.add
def password_changes_in_the_middle(visit: Visit) -> None:
    """Set another password between the two messages: the login continues with the old one."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    peer, client, answer = _begin(visit, ScramHash.SHA_256, user)
    visit.add_scram_user("ann", "another", [ScramHash.SHA_256])
    _finish(peer, client, client.final(answer))


@TABLE.add
def with_bare_tokens(visit: Visit) -> None:
    """Fail after SaslHandshake v0: the connection closes without an answer."""
    user = visit.add_scram_user("ann", PASSWORD, [ScramHash.SHA_256])
    for name in (user, visit.name("nobody")):
        peer = visit.client()
        shake(peer, "SCRAM-SHA-256", 0)
        peer.wire.send_frame(ScramClient(ScramHash.SHA_256, name, PASSWORD).first())
        peer.exchange("first message", name, lambda peer=peer: _there(peer))  # type: ignore[misc]
        if name == user:
            send_bare(peer, b"nonsense")


def _there(peer: Peer) -> Answer:
    return Answer({"answered": bool(peer.wire.receive_frame())})
