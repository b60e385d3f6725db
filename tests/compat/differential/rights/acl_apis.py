"""CreateAcls, DescribeAcls and DeleteAcls: odd entries and filters."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.compat.differential.peer import Peer
from tests.compat.differential.rights.scenes import AS_SUPER_USER
from tests.support.wire import Plain


def _entry(peer: Peer, **more: Any) -> Plain:
    return {
        "resource_type": ResourceType.TOPIC,
        "resource_name": peer.name(),
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{peer.name('u')}",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
        **more,
    }


def _filter(peer: Peer, **more: Any) -> Plain:
    return {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": f"User:{peer.name('u')}",
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
        **more,
    }


def _create(peer: Peer, *entries: Plain, version: int = 3) -> None:
    peer.call("create_acls", version, creations=list(entries))


def _described(peer: Peer, **more: Any) -> list[Any]:
    """Return what a filter finds now, in one order."""
    answer = peer.wire.call("describe_acls", 3, _filter(peer, **more)).fields
    return sorted(
        [
            (row["resource_type"], row["resource_name"], row["pattern_type"]),
            sorted(tuple(entry.values()) for entry in row["acls"]),
        ]
        for row in answer["resources"]
    )


def _settled(peer: Peer, count: int) -> None:
    """Wait until the scenario's user has so many entries, and record them."""

    def are_there(answer: Plain) -> bool:
        return sum(len(row["acls"]) for row in answer["resources"]) == count

    peer.until("describe_acls", 3, are_there, _filter(peer))
    peer.note("described", rows=[str(row) for row in _described(peer)])


ENTRIES: dict[str, dict[str, Any]] = {
    "user without a type": {"principal": "alice"},
    "type without a user": {"principal": "User:"},
    "another type": {"principal": "Group:x"},
    "empty principal": {"principal": ""},
    "empty host": {"host": ""},
    "a host": {"host": "no host at all"},
    "a range": {"host": "10.1.2.3/8"},
    "a range of IPv6": {"host": "2001:db8::/32"},
    "too long a prefix": {"host": "10.0.0.0/33"},
    "a mask": {"host": "10.0.0.0/255.0.0.0"},
    "a slash": {"host": "a/b"},
    "empty name": {"resource_name": ""},
    "wildcard": {"resource_name": "*"},
    "wildcard, prefixed": {"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED},
    "a cluster": {"resource_type": ResourceType.CLUSTER, "resource_name": "kafka-cluster"},
    "another cluster": {"resource_type": ResourceType.CLUSTER},
    "a cluster, prefixed": {
        "resource_type": ResourceType.CLUSTER,
        "resource_name": "kafka-cluster",
        "resource_pattern_type": PatternType.PREFIXED,
    },
    "an operation of clusters": {"operation": Operation.IDEMPOTENT_WRITE},
    "all operations": {"operation": Operation.ALL},
    "two-phase commit": {"operation": Operation.TWO_PHASE_COMMIT},
    "any operation": {"operation": Operation.ANY},
    "any permission": {"permission_type": Permission.ANY},
    "any pattern": {"resource_pattern_type": PatternType.ANY},
    "match": {"resource_pattern_type": PatternType.MATCH},
    "any type": {"resource_type": ResourceType.ANY},
    "a user": {"resource_type": ResourceType.USER, "resource_name": "User:x", "operation": 13},
    "a token": {"resource_type": ResourceType.DELEGATION_TOKEN},
    "operation 0": {"operation": 0},
    "permission 0": {"permission_type": 0},
    "pattern 0": {"resource_pattern_type": 0},
    "type 0": {"resource_type": 0},
    "operation 99": {"operation": 99},
    "permission 99": {"permission_type": 99},
    "pattern 99": {"resource_pattern_type": 99},
    "type 99": {"resource_type": 99},
    "long name": {"resource_name": "x" * 300},
}


@AS_SUPER_USER.add_for_each(ENTRIES)
def create(peer: Peer, more: dict[str, Any]) -> None:
    """Create an odd entry beside a good one, describe the entries, and delete both."""
    _create(peer, _entry(peer, **more), _entry(peer, operation=Operation.WRITE))
    peer.call("delete_acls", 3, filters=[_filter(peer)])


@AS_SUPER_USER.add_for_each({
    name: more
    for name, more in ENTRIES.items()
    if name.rpartition(" ")[2] in {"0", "99"} or name.startswith("any") or name == "match"
})  # fmt: skip
def filters(peer: Peer, more: dict[str, Any]) -> None:
    _create(peer, _entry(peer))
    _settled(peer, 1)
    renamed = {
        {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}.get(
            key, key
        ): value
        for key, value in more.items()
    }
    peer.call("describe_acls", 3, **_filter(peer, **renamed))
    peer.call("delete_acls", 3, filters=[_filter(peer, **renamed)])


@AS_SUPER_USER.add_for_each((1, 2, 3))
def life(peer: Peer, version: int) -> None:
    """Create two entries twice, describe the entries, delete them, and describe again."""
    both = [_entry(peer), _entry(peer, host="10.0.0.1", permission_type=Permission.DENY)]
    _create(peer, *both, version=version)
    _create(peer, *both, version=version)
    _settled(peer, 2)
    peer.call("describe_acls", version, **_filter(peer, permission_type=Permission.DENY))
    peer.call(
        "delete_acls",
        version,
        filters=[_filter(peer, host_filter="10.0.0.1"), _filter(peer, host_filter="no")],
    )
    _settled(peer, 1)
    peer.call("describe_acls", version, **_filter(peer))


@AS_SUPER_USER.add
def nothing(peer: Peer) -> None:
    _create(peer)
    peer.call("delete_acls", 3, filters=[])


@AS_SUPER_USER.add
def filters_that_overlap(peer: Peer) -> None:
    """Delete by two filters that match the same entry."""
    _create(peer, _entry(peer))
    _settled(peer, 1)
    peer.call(
        "delete_acls", 3, filters=[_filter(peer), _filter(peer, resource_type_filter=ResourceType.TOPIC)]
    )
    peer.call("delete_acls", 3, filters=[_filter(peer)])


@AS_SUPER_USER.add
def patterns(peer: Peer) -> None:
    """Find entries by the pattern of a filter: exact ones, and those that apply to a name."""
    name = peer.name("abc")
    named = (
        (name, PatternType.LITERAL),
        (name, PatternType.PREFIXED),
        (peer.name("ab"), PatternType.PREFIXED),
        (peer.name("ab"), PatternType.LITERAL),
        (peer.name("abcd"), PatternType.PREFIXED),
        ("*", PatternType.LITERAL),
        ("*", PatternType.PREFIXED),
    )
    rows = [_entry(peer, resource_name=each, resource_pattern_type=pattern) for each, pattern in named]
    _create(peer, *rows)
    _settled(peer, len(rows))
    for asked in (name, "*", peer.name("ab"), peer.name(""), "", None):
        for pattern in (PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED):
            found = _described(peer, resource_name_filter=asked, pattern_type_filter=pattern)
            peer.note(
                f"{asked and asked.replace(peer.name(''), '~')!r} as {pattern.name}",
                rows=[str(row) for row in found],
            )
    peer.call("delete_acls", 3, filters=[_filter(peer)])


@AS_SUPER_USER.add
def principals_and_hosts(peer: Peer) -> None:
    """Compare principals and hosts of filters as text."""
    user = f"User:{peer.name('u')}"
    rows = [_entry(peer, host=host) for host in ("*", "10.0.0.1", "10.0.0.0/8")]
    _create(peer, *rows)
    _settled(peer, len(rows))
    for principal in (user, user.replace("User", "user"), "User:*", "*", ""):
        for host in ("*", "10.0.0.1", "10.0.0.*", "10.0.0.0/8", "", None):
            found = _described(peer, principal_filter=principal, host_filter=host)
            label = f"{principal.replace(peer.name(''), '~')!r} from {host!r}"
            peer.note(label, rows=[str(row) for row in found])
    peer.call("delete_acls", 3, filters=[_filter(peer)])


@AS_SUPER_USER.add
def entries_outlive_their_topic(peer: Peer) -> None:
    topic = peer.topic()
    _create(peer, _entry(peer))
    _settled(peer, 1)
    peer.call("delete_topics", 5, topic_names=[topic.name], timeout=5_000)
    peer.call("describe_acls", 3, **_filter(peer))
    peer.call("delete_acls", 3, filters=[_filter(peer)])
