"""CreateAcls, DescribeAcls and DeleteAcls: the same requests to Seqgate and to Apache Kafka get the same
answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer
from tests.support.wire import Closed, Wire

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SETTLE_S = 120.0
"""Apache Kafka answers a change before its broker follows it."""

Request = tuple[str, int, dict[str, Any]]


class Pair:
    """Both endpoints, which get the same requests."""

    def __init__(self, gateway: str, kafka: str) -> None:
        self.gateway, self.kafka = gateway, kafka

    def check(self, api: str, version: int, **request: Any) -> Any:
        """Send a request to both, and compare the answers; return the answer."""
        seen = ask(self.gateway, api, version, request)
        deadline = time.monotonic() + (SETTLE_S if api == "describe_acls" else 0)
        while (expected := ask(self.kafka, api, version, request)) != seen and time.monotonic() < deadline:
            time.sleep(0.05)
        assert seen == expected, (api, version, request)
        return seen


def ask(bootstrap: str, api: str, version: int, request: dict[str, Any]) -> Any:
    with Wire(bootstrap) as wire:
        try:
            return plain(wire.call(api, version, request).fields)
        except Closed:
            return "closed"


def plain(value: Any, name: str = "") -> Any:
    """Leave out the words of messages and the order of entries, which differ."""
    if isinstance(value, dict):
        return {key: plain(inner, key) for key, inner in value.items() if key != "throttle_time"}
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if name in {"resources", "acls", "matching_acls"} else items
    return bool(value) if name == "error_message" else value


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("acls")
    with (
        KafkaPeer(folder / "kafka", properties=AUTHORIZER) as kafka,
        GatewayProcess(folder / "data", settings=AUTHORIZER) as gateway,
    ):
        yield Pair(gateway.bootstrap, kafka.bootstrap)


@pytest.fixture
def pair(endpoints: Pair) -> Pair:
    """Both endpoints without any entries."""
    endpoints.check("delete_acls", 3, filters=[found()])
    endpoints.check("describe_acls", 3, **found())
    return endpoints


def entry(name: str = "t", **changed: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changed,
    }


def found(**changed: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **changed,
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version(pair: Pair, version: int) -> None:
    pair.check("create_acls", version, creations=[entry(), entry(), entry("p", resource_pattern_type=4)])
    answer = pair.check("describe_acls", version, **found())
    assert len(answer["resources"]) == 2
    pair.check(
        "delete_acls", version, filters=[found(resource_name_filter="t"), found(), found(host_filter="x")]
    )
    assert pair.check("describe_acls", version, **found())["resources"] == []


def test_wrong_entries_are_refused_one_by_one(pair: Pair) -> None:
    beyond = [
        entry("z", **{field: code})
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")
        for code in (99, -1)
    ]
    answer = pair.check(
        "create_acls",
        3,
        creations=[
            entry(principal="nocolon"),
            entry(principal=""),
            entry(principal=":"),
            entry(principal="User:"),
            entry(principal="Group:g"),
            entry(host=""),
            entry(""),
            entry("other", resource_type=4),
            entry("kafka-cluster", resource_type=4),
            entry("kafka-cluster", resource_type=4, resource_pattern_type=4),
            entry("tx", resource_type=5, operation=12),
            entry("token", resource_type=6),
            entry("User:u", resource_type=7, operation=13),
            *beyond,
        ],
    )
    codes = [result["error_code"] for result in answer["results"]]
    assert codes == [42, 42, 0, 0, 0, 42, 42, 42, 0, 0, 0, 0, 0, *[42] * len(beyond)]
    pair.check("describe_acls", 3, **found())


@pytest.mark.parametrize(
    ("field", "code"),
    [
        (field, code)
        for field, codes in {
            "resource_type": (0, 1),
            "resource_pattern_type": (0, 1, 2),
            "operation": (0, 1),
            "permission_type": (0, 1),
        }.items()
        for code in codes
    ],
)
def test_codes_that_no_entry_has_refuse_the_request(pair: Pair, field: str, code: int) -> None:
    answer = pair.check("create_acls", 3, creations=[entry("x"), entry(**{field: code})])
    if code == 0:
        assert answer == "closed"
    else:
        assert [result["error_code"] for result in answer["results"]] == [-1, -1]
    assert pair.check("describe_acls", 3, **found())["resources"] == []


@pytest.mark.parametrize("code", [0, 99, -1])
@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
def test_codes_that_no_filter_has(pair: Pair, field: str, code: int) -> None:
    pair.check("create_acls", 3, creations=[entry()])
    pair.check("describe_acls", 3, **found(**{field: code}))
    pair.check("delete_acls", 3, filters=[found(**{field: code}), found(resource_name_filter="none")])
    assert len(pair.check("describe_acls", 3, **found())["resources"]) == 1


def test_filters(pair: Pair) -> None:
    pair.check(
        "create_acls",
        3,
        creations=[
            entry("orders"),
            entry("orders", resource_pattern_type=4),
            entry("o", resource_pattern_type=4, permission_type=2),
            entry("*", operation=4, host="192.0.2.7"),
            entry("*", resource_pattern_type=4),
            entry("orders", resource_type=3, principal="User:b"),
        ],
    )
    for name in (None, "orders", "order", "o", "*", "*x", ""):
        for pattern_type in (1, 2, 3, 4):
            pair.check(
                "describe_acls", 3, **found(resource_name_filter=name, pattern_type_filter=pattern_type)
            )
    for field, values in {
        "resource_type_filter": (2, 3, 4),
        "principal_filter": ("User:a", "User:b", "User:*", "nocolon", ""),
        "host_filter": ("*", "192.0.2.7", ""),
        "operation": (2, 3, 4, 8),
        "permission_type": (2, 3),
    }.items():
        for value in values:
            pair.check("describe_acls", 3, **found(**{field: value}))
    pair.check(
        "delete_acls",
        3,
        filters=[
            found(resource_name_filter="orders", pattern_type_filter=2, resource_type_filter=2),
            found(operation=4),
            found(principal_filter="User:b"),
        ],
    )
    pair.check("describe_acls", 3, **found())


def test_empty_requests(pair: Pair) -> None:
    pair.check("create_acls", 3, creations=[])
    pair.check("delete_acls", 3, filters=[])


def test_without_an_authorizer(kafka: KafkaPeer, shared_gateway: GatewayProcess) -> None:
    pair = Pair(shared_gateway.bootstrap, kafka.bootstrap)
    pair.check("create_acls", 3, creations=[entry(), entry("")])
    pair.check("create_acls", 3, creations=[entry(operation=1)])
    pair.check("create_acls", 3, creations=[entry(operation=0)])
    pair.check("delete_acls", 3, filters=[found(), found(operation=99)])
    assert pair.check("describe_acls", 3, **found())["error_code"] == 54
