"""ApiVersions, and malformed frames that no proper client sends."""

from __future__ import annotations

import struct

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import API_KEYS, Closed, Silent, encode, encode_header

API_VERSIONS = API_KEYS["api_versions"]
METADATA = API_KEYS["metadata"]


@scenario_for_each(range(6))
def api_versions(peer: Peer, version: int) -> None:
    peer.call("api_versions", version, client_software_name="wire", client_software_version="1.0")


@scenario
def api_versions_of_another_node(peer: Peer) -> None:
    """Mean this node, another one, and half of one (KIP-1242)."""
    described = peer.wire.call("describe_cluster", 0, include_cluster_authorized_operations=False).fields
    cluster_id, node_id = described["cluster_id"], described["brokers"][0]["broker_id"]
    for meant in (
        (cluster_id, node_id),
        (cluster_id, node_id + 1),
        ("another", node_id),
        (cluster_id, -1),
        (None, node_id),
        (None, -1),
        ("", 0),
    ):
        software = {"client_software_name": "wire", "client_software_version": "1.0"}
        peer.call("api_versions", 5, **software, cluster_id=meant[0], node_id=meant[1])


@scenario_for_each({"6": 6, "99": 99, "32767": 32_767, "-1": -1})
def api_versions_too_new(peer: Peer, version: int) -> None:
    """Get an answer in version 0, whatever version was asked for; the connection stays open."""
    payload = (
        encode_header(API_VERSIONS, version, 1, flexible=True, client_id="wire") + b"\x05wire\x041.0\x00"
    )
    peer.frame(f"api_versions v{version}", payload, api="api_versions", version=0)
    peer.call("api_versions", 0)


@scenario_for_each(
    {"empty name": ("", "1"), "empty version": ("x", ""), "illegal": ("a b", "1"), "dashes": ("-a-", "1")}
)
def api_versions_of_strange_software(peer: Peer, software: tuple[str, str]) -> None:
    for version in (3, 4):
        peer.call(
            "api_versions", version, client_software_name=software[0], client_software_version=software[1]
        )


@scenario
def api_versions_twice(peer: Peer) -> None:
    peer.call("api_versions", 3, client_software_name="wire", client_software_version="1.0")
    peer.call("api_versions", 3, client_software_name="other", client_software_version="2.0")
    peer.call("api_versions", 0)


@scenario_for_each({"99": (99, 0), "-1": (-1, 0), "1000": (1_000, 3), "controlled shutdown": (7, 0)})
def unknown_api(peer: Peer, key_and_version: tuple[int, int]) -> None:
    key, version = key_and_version
    payload = encode_header(key, version, 1, flexible=False, client_id="wire")
    peer.frame(f"api {key} v{version}", payload, api="api_versions")


UNSUPPORTED = {
    "produce 2": (0, 2),
    "produce 14": (0, 14),
    "fetch 3": (1, 3),
    "fetch 19": (1, 19),
    "list_offsets 0": (2, 0),
    "list_offsets 12": (2, 12),
    "metadata 14": (3, 14),
    "metadata -1": (3, -1),
    "create_topics 1": (19, 1),
    "create_topics 8": (19, 8),
    "init_producer_id 7": (22, 7),
    "describe_configs 0": (32, 0),
}


@scenario_for_each(UNSUPPORTED)
def unsupported_version(peer: Peer, key_and_version: tuple[int, int]) -> None:
    key, version = key_and_version
    payload = encode_header(key, version, 1, flexible=False, client_id="wire")
    peer.frame(f"api {key} v{version}", payload + b"\0" * 40, api="api_versions")


SIZES = {
    "zero": struct.pack(">i", 0),
    "negative": struct.pack(">i", -1),
    "huge": struct.pack(">i", 2**31 - 1),
    "200 MB": struct.pack(">i", 200_000_000),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@scenario_for_each(SIZES)
def sizes(peer: Peer, sent: bytes) -> None:
    peer.wire.send_bytes(sent)
    try:
        peer.wire.expect_nothing(0.3)
        outcome = "nothing happened"
    except (Closed, Silent):
        outcome = "closed"
    peer.note("after a strange size", outcome=outcome)


def _metadata_frame(topic_count: int, tail: bytes = b"", *, version: int = 1) -> bytes:
    header = encode_header(METADATA, version, 1, flexible=False, client_id="wire")
    return header + struct.pack(">i", topic_count) + tail


BODIES: dict[str, tuple[bytes, int]] = {
    "array of -1": (_metadata_frame(-1), 1),
    "array of -2": (_metadata_frame(-2), 1),
    "array too long": (_metadata_frame(1_000_000), 1),
    "array of 2, one there": (_metadata_frame(2, b"\x00\x01a"), 1),
    "string of -1": (_metadata_frame(1, b"\xff\xff"), 1),
    "string of -5": (_metadata_frame(1, b"\xff\xfb"), 1),
    "string too long": (_metadata_frame(1, b"\x10\x00abc"), 1),
    "invalid utf-8": (_metadata_frame(1, b"\x00\x02\xff\xfe", version=4) + b"\x00", 4),
    "trailing garbage": (
        encode("metadata", 4, {"topics": [], "allow_auto_topic_creation": False}) + b"tail",
        4,
    ),
    "no body": (encode_header(METADATA, 1, 1, flexible=False, client_id="wire"), 1),
    "flexible trailing garbage": (
        encode("metadata", 12, {"topics": [], "allow_auto_topic_creation": False}) + b"tail",
        12,
    ),
}


@scenario_for_each(BODIES)
def bodies(peer: Peer, frame: tuple[bytes, int]) -> None:
    payload, version = frame
    peer.frame("metadata", payload, api="metadata", version=version, only_own=True)
    peer.call("api_versions", 0)


@scenario_for_each({"null": None, "empty": "", "umlaut": "grün", "long": "x" * 1_000})
def client_ids(peer: Peer, client_id: str | None) -> None:
    header = encode_header(API_VERSIONS, 0, 77, flexible=False, client_id=client_id)
    peer.frame("api_versions v0", header, api="api_versions", correlation_id=77)


@scenario_for_each({"-5": -5, "min": -(2**31), "max": 2**31 - 1, "0": 0})
def correlation_ids(peer: Peer, number: int) -> None:
    header = encode_header(API_VERSIONS, 0, number, flexible=False, client_id="wire")
    peer.frame("api_versions v0", header, api="api_versions", correlation_id=number)


@scenario_for_each(
    {
        "short": b"\x00\x12",
        "no correlation": b"\x00\x12\x00\x00",
        "client id cut": b"\0\x12\0\0\0\0\0\1\0\x09ab",
    }
)
def headers_cut(peer: Peer, payload: bytes) -> None:
    peer.frame("a cut header", payload, api="api_versions")


TAGS = {
    "unknown tag": b"\x01\x63\x03abc",
    "two unknown tags": b"\x02\x62\x01a\x63\x03abc",
    "repeated tag": b"\x02\x63\x01a\x63\x01b",
    "tags out of order": b"\x02\x63\x01a\x62\x01b",
    "tag cut": b"\x01\x63\x30abc",
}


@scenario_for_each(TAGS)
def tags_in_the_header(peer: Peer, tags: bytes) -> None:
    header = encode_header(API_VERSIONS, 3, 1, flexible=True, client_id="wire")[:-1] + tags
    peer.frame("api_versions v3", header + b"\x05wire\x041.0\x00", api="api_versions", version=3)


@scenario_for_each(TAGS)
def tags_in_the_body(peer: Peer, tags: bytes) -> None:
    header = encode_header(API_VERSIONS, 3, 1, flexible=True, client_id="wire")
    peer.frame("api_versions v3", header + b"\x05wire\x041.0" + tags, api="api_versions", version=3)


@scenario
def frame_in_pieces(peer: Peer) -> None:
    """Send a request byte by byte, then two requests in one TCP segment."""
    payload = encode("api_versions", 0, {}, correlation_id=1)
    framed = struct.pack(">i", len(payload)) + payload
    for index in range(len(framed)):
        peer.wire.send_bytes(framed[index : index + 1])
    peer.exchange("byte by byte", None, lambda: peer.wire.receive("api_versions", 0, 1))
    peer.wire.send_bytes(framed + framed)
    peer.exchange("first of two", None, lambda: peer.wire.receive("api_versions", 0, 1))
    peer.exchange("second of two", None, lambda: peer.wire.receive("api_versions", 0, 1))
