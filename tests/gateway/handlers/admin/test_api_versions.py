"""ApiVersions tells the gateway what software a client is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.admin import api_versions as module
from seqgate.gateway.handlers.admin.api_versions import API_KEY, MAX_SOFTWARE_CHARACTERS
from seqgate.gateway.handlers.answering.api import UNKNOWN_SOFTWARE, ClientSoftware
from seqgate.gateway.protocol.messages import build, request_type, response_type
from seqgate.gateway.protocol.schema import entity_reader
from tests.gateway.handlers.support import Node, open_node

(API,) = (api for api in APIS if api.key == API_KEY)


def say(node: Node, version: int, **fields: str) -> ClientSoftware:
    """Send ApiVersions; return the software that the connection has then."""
    request: Any = build(request_type(API_KEY, version), **fields)
    assert API.begin is not None
    assert API.begin(node.context(API, version), request)
    return node.peer.software


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        (4, "apache-kafka-java", ClientSoftware("apache-kafka-java", "4.3.1")),
        (3, "librdkafka", ClientSoftware("librdkafka", "4.3.1")),
        (3, "-", UNKNOWN_SOFTWARE),
        (2, "apache-kafka-java", UNKNOWN_SOFTWARE),
        (3, "x" * 1000, ClientSoftware("x" * MAX_SOFTWARE_CHARACTERS, "4.3.1")),
    ],
)
async def test_the_software_of_the_client_is_known_afterwards(
    tmp_path: Path, version: int, name: str, expected: ClientSoftware
) -> None:
    async with open_node(tmp_path) as node:
        assert say(node, version, client_software_name=name, client_software_version="4.3.1") == expected


def ask(node: Node, **fields: Any) -> Any:
    """Send ApiVersions v5; return the answer."""
    request = build(request_type(API_KEY, 5), client_software_name="a", client_software_version="1", **fields)
    assert API.begin is not None
    frame = API.begin(node.context(API, 5), request)
    assert isinstance(frame, bytes)
    return entity_reader(response_type(API_KEY, 5))(memoryview(frame), 8)[0]


async def test_a_client_that_means_another_node_bootstraps_again(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        cluster_id, node_id = node.services.node.cluster_id, node.services.node.node_id
        assert ask(node).error_code == ErrorCode.none
        answer = ask(node, cluster_id=cluster_id, node_id=node_id)
        assert (answer.error_code, len(answer.api_keys)) == (ErrorCode.none, len(ask(node).api_keys))
        for others in ((cluster_id, node_id + 1), ("another", node_id)):
            answer = ask(node, cluster_id=others[0], node_id=others[1])
            assert (answer.error_code, answer.api_keys) == (ErrorCode.rebootstrap_required, ())


async def test_a_cluster_without_a_node_and_a_node_without_a_cluster_are_invalid(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        for fields in ({"cluster_id": node.services.node.cluster_id}, {"node_id": 1}):
            answer = ask(node, **fields)
            assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())
            assert node.peer.software == UNKNOWN_SOFTWARE


async def test_equal_software_is_stored_once(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        fields = {"client_software_name": "a" + "b" * 9, "client_software_version": "1"}
        assert say(node, 3, **fields) is say(node, 3, **{**fields, "client_software_name": "ab" + "b" * 8})


async def test_the_apis_of_telemetry_are_advertised() -> None:
    served = {api.name: api.versions for api in APIS}
    assert served["GetTelemetrySubscriptions"] == served["PushTelemetry"] == (0, 0)


async def test_without_their_package_they_are_not_advertised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_installed", lambda name: name != "opentelemetry.proto")
    others = [api for api in APIS if api.key != API_KEY]
    lacking = module.api_versions(others)
    assert API.begin is not None
    assert lacking.begin is not None
    async with open_node(tmp_path) as node:
        request: Any = build(request_type(API_KEY, 0))
        answers = [begin(node.context(API, 0), request) for begin in (API.begin, lacking.begin)]
    whole, less = (len(answer) for answer in answers if isinstance(answer, bytes))
    assert whole - less == 2 * 6, "two rows of three int16 each"
