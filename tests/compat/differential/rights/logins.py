"""The login on a connection: ApiVersions, SaslHandshake, SaslAuthenticate and bare tokens, in right and wrong
orders.
"""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.rights.endpoints import PASSWORD, SUPER_USER
from tests.compat.differential.rights.scenes import AS_SUPER_USER, BEFORE_LOGIN
from tests.support.sasl_login import plain_token
from tests.support.wire import Answer, Plain, encode

TOKEN = plain_token(SUPER_USER, PASSWORD)
WRONG = plain_token(SUPER_USER, "wrong")
ENABLED_SIZE = 524_288


def _shake(peer: Peer, version: int = 1, mechanism: str = "PLAIN") -> Plain:
    return peer.call("sasl_handshake", version, mechanism=mechanism)


def _authenticate(peer: Peer, token: bytes = TOKEN, version: int = 2) -> Plain:
    return peer.call("sasl_authenticate", version, auth_bytes=token)


def _versions(peer: Peer, version: int = 3, **more: Any) -> None:
    peer.call(
        "api_versions", version, **{"client_software_name": "c", "client_software_version": "1", **more}
    )


def _metadata(peer: Peer) -> None:
    peer.call("metadata", 12, topics=[])


def _is_open(peer: Peer) -> None:
    """Record whether the connection is still open, without sending anything."""

    def converse() -> Answer:
        peer.wire.expect_nothing(0.3)
        return Answer({"open": True})

    peer.exchange("is open", None, converse)


def _bare(peer: Peer, token: bytes) -> None:
    """Send a token without a request around it, as after SaslHandshake v0."""

    def converse() -> Answer:
        peer.wire.send_frame(token)
        return Answer({"token": peer.wire.receive_frame()})

    peer.exchange("bare token", token, converse)


@BEFORE_LOGIN.add_for_each(range(5))
def versions_before_login(peer: Peer, version: int) -> None:
    _versions(peer, version)
    _shake(peer)
    _authenticate(peer)
    _versions(peer, version)


@BEFORE_LOGIN.add
def versions_of_another_version(peer: Peer) -> None:
    """Send ApiVersions in a version that no broker has, as newer clients do, and again in a version that is
    answered.
    """
    peer.frame("api_versions v99", b"\0\x12\0\x63\0\0\0\1\0\4wire\0\2c\2c\0", api="api_versions", version=0)
    _versions(peer, 0)
    _shake(peer)
    _authenticate(peer)
    _metadata(peer)


@BEFORE_LOGIN.add
def versions_twice(peer: Peer) -> None:
    _versions(peer)
    _versions(peer)


@BEFORE_LOGIN.add
def versions_with_a_bad_name(peer: Peer) -> None:
    _versions(peer, client_software_name="-")
    _versions(peer)
    _shake(peer)
    _authenticate(peer)


@BEFORE_LOGIN.add_for_each(
    {
        f"handshake v{shake}, authenticate v{version}": (shake, version)
        for shake in (1,)
        for version in range(3)
    }
)
def plain(peer: Peer, versions: tuple[int, int]) -> None:
    _shake(peer, versions[0])
    _authenticate(peer, version=versions[1])
    _metadata(peer)


@BEFORE_LOGIN.add
def plain_with_bare_tokens(peer: Peer) -> None:
    _shake(peer, 0)
    _bare(peer, TOKEN)
    _metadata(peer)


@BEFORE_LOGIN.add
def wrong_password_with_bare_tokens(peer: Peer) -> None:
    _shake(peer, 0)
    _bare(peer, WRONG)


@BEFORE_LOGIN.add
def bare_token_after_handshake_v1(peer: Peer) -> None:
    _shake(peer, 1)
    _bare(peer, TOKEN)


@BEFORE_LOGIN.add
def authenticate_after_handshake_v0(peer: Peer) -> None:
    _shake(peer, 0)
    _authenticate(peer)


TOKENS = {
    "wrong password": WRONG,
    "no password": plain_token(SUPER_USER, ""),
    "unknown user": plain_token("nobody", "nobody-secret"),
    "no user": plain_token("", PASSWORD),
    "authzid equal": plain_token(SUPER_USER, PASSWORD, SUPER_USER),
    "authzid other": plain_token(SUPER_USER, PASSWORD, "other"),
    "two fields": f"{SUPER_USER}\0{PASSWORD}".encode(),
    "four fields": TOKEN + b"\0more",
    "ends with zero": TOKEN + b"\0",
    "no zero": b"nonsense",
    "empty": b"",
    "not utf-8": b"\0\xff\xfe\0\xff",
    "upper case": plain_token(SUPER_USER.upper(), PASSWORD),
    "space behind": TOKEN + b" ",
}


@BEFORE_LOGIN.add_for_each(TOKENS)
def token(peer: Peer, token: bytes) -> None:
    _shake(peer)
    answer = _authenticate(peer, token)
    if answer.get("error_code") == 0:
        _metadata(peer)
    else:
        _is_open(peer)


@BEFORE_LOGIN.add_for_each(
    {name or "empty": name for name in ("plain", "GSSAPI", "", "SCRAM-SHA-512", "PLAIN ")}
)
def unknown_mechanism(peer: Peer, mechanism: str) -> None:
    for version in (0, 1):
        _shake(peer, version, mechanism)
        _is_open(peer)


@BEFORE_LOGIN.add
def handshake_of_an_unknown_version(peer: Peer) -> None:
    frame = encode("sasl_handshake", 1, {"mechanism": "PLAIN"})
    peer.frame("sasl_handshake v2", frame[:2] + b"\0\2" + frame[4:], api="sasl_handshake", version=1)


TOO_EARLY = {"metadata": 12, "produce": 9, "sasl_authenticate": 2, "list_groups": 5}


@BEFORE_LOGIN.add_for_each({api: api for api in TOO_EARLY})
def request_before_handshake(peer: Peer, api: str) -> None:
    for versions_first in (False, True):
        if versions_first:
            _versions(peer)
        peer.call(api, TOO_EARLY[api])


IN_BETWEEN: dict[str, tuple[str, int, Plain]] = {
    "metadata": ("metadata", 12, {"topics": []}),
    "api_versions": ("api_versions", 3, {"client_software_name": "c", "client_software_version": "1"}),
    "handshake": ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
    "list_groups": ("list_groups", 5, {}),
    "find_coordinator": ("find_coordinator", 6, {"coordinator_keys": ["g"]}),
    "describe_acls": ("describe_acls", 3, {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}),
    "init_producer_id": ("init_producer_id", 5, {}),
}  # fmt: skip


@BEFORE_LOGIN.add_for_each(IN_BETWEEN)
def request_after_handshake(peer: Peer, request: tuple[str, int, Plain]) -> None:
    api, version, body = request
    _shake(peer)
    peer.call(api, version, **body)
    _is_open(peer)


@BEFORE_LOGIN.add
def all_at_once(peer: Peer) -> None:
    """Send handshake, token and requests before the first answer."""
    peer.pipelined([
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        ("sasl_authenticate", 2, {"auth_bytes": TOKEN}),
        ("metadata", 12, {"topics": []}),
        ("metadata", 12, {"topics": []}),
    ])  # fmt: skip


@BEFORE_LOGIN.add
def requests_behind_a_wrong_password(peer: Peer) -> None:
    peer.pipelined([
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        ("sasl_authenticate", 2, {"auth_bytes": WRONG}),
        ("metadata", 12, {"topics": []}),
    ])  # fmt: skip


@BEFORE_LOGIN.add
def again_after_login(peer: Peer) -> None:
    """Handshake and token after a login; re-authentication is off."""
    _shake(peer)
    _authenticate(peer)
    _shake(peer)
    _authenticate(peer)
    _shake(peer, 0)
    _metadata(peer)


@AS_SUPER_USER.add
def on_a_listener_without_logins(peer: Peer) -> None:
    _shake(peer)
    _authenticate(peer)
    _metadata(peer)


SIZES = {"negative": -1, "zero": 0, "too large": ENABLED_SIZE + 1, "huge": 2**31 - 1}


@BEFORE_LOGIN.add_for_each(SIZES)
def frame_size(peer: Peer, size: int) -> None:
    """Send only the length of a frame."""

    def converse() -> Answer:
        peer.wire.send_bytes(size.to_bytes(4, "big", signed=True))
        return Answer({"token": peer.wire.receive_frame()})

    for handshake in (False, True):
        if handshake:
            _shake(peer)
        peer.exchange(f"a frame of {size} bytes", size, converse)


@BEFORE_LOGIN.add
def wrong_password_hinders_nobody(peer: Peer) -> None:
    """The answer to a wrong password comes late; a login that begins meanwhile is answered before it."""
    other = peer.connect()
    _shake(peer)
    pending = peer.begin("sasl_authenticate", 2, auth_bytes=WRONG)
    _shake(other)
    _authenticate(other)
    peer.note("order", the_refusal_is_still_to_come=not pending.is_there())
    pending.answer()
