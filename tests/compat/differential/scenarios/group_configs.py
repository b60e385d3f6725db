"""Configurations of groups: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs; ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

TOPIC, CLIENT_METRICS, GROUP = 2, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
RESET = "share.auto.offset.reset"
LEVEL = "share.isolation.level"


def _describe(
    peer: Peer, group_id: str, keys: list[str] | None = None, *, version: int = 4, **more: bool
) -> Plain:
    wanted = {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": keys}
    return peer.call("describe_configs", version, resources=[wanted], **more)


def _settled(peer: Peer, group_id: str, expected: Mapping[str, str]) -> None:
    """Wait until the group shows these values, and record all its configs."""

    def shows(answer: Plain) -> bool:
        found = {config["name"]: config["value"] for config in answer["results"][0]["configs"]}
        return all(found.get(name) == value for name, value in expected.items())

    wanted = {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": None}
    peer.eventually("describe_configs", 4, shows, resources=[wanted], include_synonyms=True)


def _alter(
    peer: Peer, group_id: str, *configs: tuple[str, str | None], version: int = 2, **more: bool
) -> Plain:
    rows = [{"name": name, "value": value} for name, value in configs]
    wanted = {"resource_type": GROUP, "resource_name": group_id, "configs": rows}
    return peer.call("alter_configs", version, resources=[wanted], **more)


def _incremental(
    peer: Peer, group_id: str, *operations: tuple[str, int, str | None], version: int = 1, **more: bool
) -> Plain:
    rows = [
        {"name": name, "config_operation": operation, "value": value} for name, operation, value in operations
    ]
    wanted = {"resource_type": GROUP, "resource_name": group_id, "configs": rows}
    return peer.call("incremental_alter_configs", version, resources=[wanted], **more)


@scenario_for_each(range(1, 5))
def describe(peer: Peer, version: int) -> None:
    """Describe a group that does not exist: it shows the defaults."""
    group_id = peer.name("g")
    _describe(peer, group_id, version=version)
    _describe(peer, group_id, [SESSION, RESET], version=version, include_synonyms=True)
    _describe(peer, group_id, [SESSION, RESET], version=version, include_documentation=True)
    _describe(peer, group_id, ["no.such.config"], version=version)
    _describe(peer, group_id, [], version=version)
    _describe(peer, "", [SESSION], version=version)
    _describe(peer, "a b", [SESSION], version=version)


@scenario_for_each(range(3))
def alter(peer: Peer, version: int) -> None:
    """Replace all configs that were set before (AlterConfigs)."""
    group_id = peer.name("g")
    _alter(peer, group_id, (SESSION, "50000"), (LEVEL, "read_committed"), version=version)
    _settled(peer, group_id, {SESSION: "50000", LEVEL: "read_committed"})
    _alter(peer, group_id, (RESET, "earliest"), version=version)
    _settled(peer, group_id, {RESET: "earliest", SESSION: "45000"})
    _alter(peer, group_id, version=version)
    _settled(peer, group_id, {RESET: "latest"})


@scenario_for_each(range(2))
def incremental(peer: Peer, version: int) -> None:
    group_id = peer.name("g")
    _incremental(peer, group_id, (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"), version=version)
    _settled(peer, group_id, {SESSION: "50000", HEARTBEAT: "6000"})
    _incremental(peer, group_id, (SESSION, DELETE, None), version=version)
    _settled(peer, group_id, {SESSION: "45000", HEARTBEAT: "6000"})
    _incremental(peer, group_id, (HEARTBEAT, DELETE, "ignored"), (RESET, SET, "by_duration:PT1H"))
    _settled(peer, group_id, {RESET: "by_duration:PT1H", HEARTBEAT: "5000"})


@scenario
def offload(peer: Peer) -> None:
    """Set the `assignor.offload.enable` configs of KIP-1263, which Kafka 4.4 takes and does not describe."""
    for kind in ("consumer", "share"):
        _incremental(peer, peer.name("g"), (f"{kind}.assignor.offload.enable", SET, "false"))


@scenario
def validate_only(peer: Peer) -> None:
    group_id = peer.name("g")
    _alter(peer, group_id, (SESSION, "50000"), validate_only=True)
    _alter(peer, group_id, (SESSION, "1"), validate_only=True)
    _incremental(peer, group_id, (SESSION, SET, "50000"), validate_only=True)
    _incremental(peer, group_id, (SESSION, SET, "1"), validate_only=True)
    _settled(peer, group_id, {})


BOUNDED: dict[str, tuple[str, int, int]] = {
    "session": (SESSION, 45_000, 60_000),
    "heartbeat": (HEARTBEAT, 5_000, 15_000),
    "interval": ("consumer.assignment.interval.ms", 0, 15_000),
    "share interval": ("share.assignment.interval.ms", 0, 15_000),
    "share session": ("share.session.timeout.ms", 45_000, 60_000),
    "share heartbeat": ("share.heartbeat.interval.ms", 5_000, 15_000),
    "lock": ("share.record.lock.duration.ms", 15_000, 60_000),
    "deliveries": ("share.delivery.count.limit", 2, 10),
    "locks": ("share.partition.max.record.locks", 100, 4_000),
}


@scenario_for_each(BOUNDED)
def numbers(peer: Peer, case: tuple[str, int, int]) -> None:
    """Set values just inside and just outside of each bound, and values that are no numbers."""
    name, smallest, largest = case
    edges = [str(value) for value in (smallest - 1, smallest, largest, largest + 1)]
    for value in (*edges, "0", "-1", "soon", "", "1e4", "99999999999"):
        _incremental(peer, peer.name("g"), (name, SET, value), validate_only=True)
        _alter(peer, peer.name("g"), (name, value), validate_only=True)


TEXTS: dict[str, tuple[str, list[str]]] = {
    "reset": (
        RESET,
        ["earliest", "latest", "none", "LATEST", "", " earliest ", "by_duration", "by_duration:"],
    ),
    "durations": (
        RESET,
        [
            f"by_duration:{text}"
            for text in (
                *("PT1H", "P1D", "P1DT1H1M1.5S", "pt1s", "PT0S", "PT-1S", "-PT1S", "-PT-1S", "PT1H-30M"),
                *("PT", "P", "P1Y", "P1W", "1", "PT1.5H", "PT1,5S", "PT.5S", "PT1.S", " PT1S"),
                *("PT0.1234567891S", "PT9999999999999999999S", "P1DT"),
            )
        ],
    ),
    "isolation": (LEVEL, ["read_committed", "read_uncommitted", "READ_COMMITTED", "", "none"]),
    "renew": ("share.renew.acknowledge.enable", ["true", "FALSE", "yes", ""]),
}


@scenario_for_each(TEXTS)
def texts(peer: Peer, case: tuple[str, list[str]]) -> None:
    name, values = case
    for value in values:
        _incremental(peer, peer.name("g"), (name, SET, value), validate_only=True)


OPERATIONS: dict[str, list[tuple[str, int, str | None]]] = {
    "append": [(RESET, APPEND, "earliest")],
    "subtract": [(SESSION, SUBTRACT, "45000")],
    "append unknown": [("no.such.config", APPEND, "1")],
    "set unknown": [("no.such.config", SET, "1")],
    "delete unknown": [("no.such.config", DELETE, None)],
    "null": [(SESSION, SET, None)],
    "same name twice": [(SESSION, SET, "50000"), (SESSION, SET, "51000")],
    "set and delete": [(SESSION, SET, "50000"), (SESSION, DELETE, None)],
    "delete what is not set": [(SESSION, DELETE, None)],
    "one good, one bad": [(SESSION, SET, "50000"), (HEARTBEAT, SET, "x")],
    "session no longer than heartbeat": [(SESSION, SET, "15000"), (HEARTBEAT, SET, "15000")],
    "nothing": [],
}


@scenario_for_each(OPERATIONS)
def operations(peer: Peer, operations: list[tuple[str, int, str | None]]) -> None:
    group_id = peer.name("g")
    _incremental(peer, group_id, *operations)
    _settled(peer, group_id, {})


@scenario
def names(peer: Peer) -> None:
    for group_id in ("", "a b", "ü", "x" * 300):
        _incremental(peer, group_id, (SESSION, SET, "50000"), validate_only=True)
        _alter(peer, group_id, (SESSION, "50000"), validate_only=True)


@scenario
def one_refused_of_several(peer: Peer) -> None:
    good, bad = peer.name("good"), peer.name("bad")
    resources = [
        {
            "resource_type": GROUP,
            "resource_name": group_id,
            "configs": [{"name": SESSION, "config_operation": SET, "value": value}],
        }
        for group_id, value in ((good, "50000"), (bad, "1"))
    ]
    peer.call("incremental_alter_configs", 1, resources=resources)
    _settled(peer, good, {SESSION: "50000"})
    _settled(peer, bad, {})


@scenario_for_each(range(2))
def list_resources(peer: Peer, version: int) -> None:
    """List resources: version 0 lists client metrics only."""
    group_id = peer.name("g")
    _incremental(peer, group_id, (SESSION, SET, "50000"))
    _settled(peer, group_id, {SESSION: "50000"})
    if version == 0:
        peer.call("list_config_resources", version, only_own=True)
        return
    topic = peer.topic()
    for types in ([GROUP], [GROUP, TOPIC], [GROUP, GROUP], [CLIENT_METRICS], [TOPIC]):
        peer.call("list_config_resources", version, resource_types=types, only_own=True)
    for types in ([99], [0], [GROUP, 99], [-1]):
        peer.call("list_config_resources", version, resource_types=types)
    peer.call("list_config_resources", version, resource_types=[], only_own=True)
    peer.note("the topic was listed too", name=topic.name)
    _incremental(peer, group_id, (SESSION, DELETE, None))
    _settled(peer, group_id, {SESSION: "45000"})
    peer.call("list_config_resources", version, resource_types=[GROUP], only_own=True)


ASSIGNOR = "streams.assignor.name"
TAGS = "streams.rack.aware.assignment.tags"


@scenario_for_each(
    {
        "assignor": (ASSIGNOR, "sticky"),
        "assignor in capitals": (ASSIGNOR, "Sticky"),
        "unknown assignor": (ASSIGNOR, "spread"),
        "no assignor": (ASSIGNOR, ""),
        "tags": (TAGS, "zone,rack"),
        "tags with spaces": (TAGS, " zone , rack "),
        "no tags": (TAGS, ""),
        "tag twice": (TAGS, "zone,rack,zone"),
        "empty tag": (TAGS, "zone,,rack"),
    }
)
def of_streams_groups(peer: Peer, config: tuple[str, str]) -> None:
    """Configurations of streams groups that Kafka 4.4 adds."""
    name, value = config
    group_id = peer.name("g")
    _describe(peer, group_id, [name], include_synonyms=True)
    answer = _incremental(peer, group_id, (name, SET, value))
    if not answer["responses"][0]["error_code"]:
        _incremental(peer, group_id, (SESSION, SET, "50000"))
        _settled(peer, group_id, {SESSION: "50000"})
    _describe(peer, group_id, [name], include_synonyms=True)
