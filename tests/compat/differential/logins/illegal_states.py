"""Requests of every API that come while a login expects a handshake or a token."""

from __future__ import annotations

from seqgate.gateway.protocol.error_answers import NOT_MADE
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.compat.differential.logins.visit import Table, Visit, authenticate, is_open, is_served, shake
from tests.compat.differential.peer import Peer
from tests.support.full_requests import full_request
from tests.support.sasl_login import plain_token
from tests.support.scram import ScramClient
from tests.support.wire import API_KEYS, Answer, Plain, decode, encode, versions_of

TABLE = Table()
CLOSES_S = 3.0
APIS = [api for api in API_KEYS if api not in NOT_MADE]
ALONE = {
    "produce without acks": ("produce", 9, {"acks": 0}),
    "metadata of all topics": ("metadata", 12, {"topics": None}),
    "metadata of a topic id": (
        "metadata",
        12,
        {"topics": [{"name": None, "topic_id": "00000000-0000-0000-0000-00000000000a"}]},
    ),
    "several groups": ("delete_groups", 2, {"groups_names": ["b", "a", "b"]}),
    "users several times": (
        "alter_user_scram_credentials",
        0,
        {"deletions": [{"name": "b", "mechanism": 1}] * 2, "upsertions": [{"name": "a", "mechanism": 1}]},
    ),
    "all users": ("describe_user_scram_credentials", 0, {"users": None}),
    "no topics": ("create_topics", 7, {}),
    "default client": ("alter_client_quotas", 1, {"entries": [{"entity": [{"entity_type": "client-id"}]}]}),
}


def _send(client: Peer, api: str, version: int, request: Plain) -> None:
    client.wire.send_frame(encode(api, version, request))


def _answer(client: Peer, api: str, version: int) -> None:
    """Record the answer, if there is one, and whether the connection closes after it."""

    def converse() -> Answer:
        return decode(api, version, client.wire.receive_frame())

    if client.exchange(f"{api} v{version}", {"member_id": "x"}, converse):
        is_open(client, CLOSES_S)


@TABLE.add_for_each(APIS)
def after_handshake(visit: Visit, api: str) -> None:
    """Send a request of each version, each on its own connection."""
    clients = {version: visit.client() for version in versions_of(api)}
    for version, client in clients.items():
        shake(client)
        if api == "sasl_authenticate":
            continue
        _send(client, api, version, full_request(api, version))
    for version, client in clients.items():
        if api != "sasl_authenticate":
            _answer(client, api, version)


@TABLE.add_for_each(ALONE)
def odd_request_after_handshake(visit: Visit, request: tuple[str, int, Plain]) -> None:
    api, version, fields = request
    client = visit.client()
    shake(client)
    _send(client, api, version, fields)
    _answer(client, api, version)


@TABLE.add
def before_handshake(visit: Visit) -> None:
    """Send a request of each API as the first one."""
    apis = [api for api in APIS if api not in {"sasl_handshake", "api_versions"}]
    clients = {api: visit.client() for api in apis}
    for api, client in clients.items():
        _send(client, api, versions_of(api)[-1], full_request(api, versions_of(api)[-1]))
    for api, client in clients.items():
        _answer(client, api, versions_of(api)[-1])


@TABLE.add
def between_messages_of_scram(visit: Visit) -> None:
    """Send a request of each API after the first message of a login was answered."""
    user = visit.add_scram_user("ann", "secret", [ScramHash.SHA_256])
    first = ScramClient(ScramHash.SHA_256, user, "secret").first()
    apis = [api for api in APIS if api != "sasl_authenticate"]
    clients = {api: visit.client() for api in apis}
    for api, client in clients.items():
        shake(client, ScramHash.SHA_256.mechanism)
        authenticate(client, first, show=bool)
        _send(client, api, versions_of(api)[-1], full_request(api, versions_of(api)[-1]))
    for api, client in clients.items():
        _answer(client, api, versions_of(api)[-1])


@TABLE.add
def unknown_versions_after_handshake(visit: Visit) -> None:
    """Send versions that are too new, and keys of no API."""
    for frame in (
        b"\0\x12\0\x63\0\0\0\1\0\1c\0\0\0\0",  # ApiVersions v99
        b"\0\x12\xff\xff\0\0\0\1\0\1c",  # ApiVersions v-1
        b"\0\x11\0\2\0\0\0\1\0\1c\0\5PLAIN",  # SaslHandshake v2
        b"\0\3\0\x63\0\0\0\1\0\1c\0\0\0\0",  # Metadata v99
        b"\0\x24\0\x63\0\0\0\1\0\1c\0\0\0\0",  # SaslAuthenticate v99
        b"\3\xe7\0\0\0\0\0\1\0\1c",
        b"\0\3\0\1\0\0\0\1\0\1c\0\0\0\5",  # Metadata v1, cut off
    ):
        client = visit.client()
        shake(client)

        def converse(client: Peer = client, frame: bytes = frame) -> Answer:
            client.wire.send_frame(frame)
            return Answer({"bytes": client.wire.receive_frame()})

        client.exchange("odd frame", frame, converse)


@TABLE.add_for_each(["metadata", "api_versions", "sasl_handshake", "produce", "fetch", "offset_fetch"])
def during_reauthentication(visit: Visit, api: str) -> None:
    client = visit.known("alice", "again")
    shake(client)
    version = versions_of(api)[-1]
    _send(client, api, version, full_request(api, version))
    _answer(client, api, version)


@TABLE.add
def after_login(visit: Visit) -> None:
    """Send the requests of a login where re-authentication is off; the connection stays."""
    client = visit.known("alice")
    for version in versions_of("sasl_handshake"):
        shake(client, version=version)
    for version in versions_of("sasl_authenticate"):
        authenticate(client, plain_token("alice", "alice-secret"), version=version)
    is_served(client)


@TABLE.add
def after_failed_login(visit: Visit) -> None:
    """Send requests behind a wrong password, before its answer comes."""
    client = visit.client()
    shake(client)
    sent = client.begin("sasl_authenticate", 2, auth_bytes=plain_token("alice", "wrong"))
    client.wire.send("sasl_authenticate", 2, {"auth_bytes": plain_token("alice", "alice-secret")})
    client.wire.send("metadata", 12, {"topics": []})
    sent.answer()
    is_open(client, CLOSES_S)
