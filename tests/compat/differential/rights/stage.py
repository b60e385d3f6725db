"""The resources of a scenario about rights: a user whose entries change between the requests, and the topics,
groups and transactional ids that the requests name. They come in pairs: the entries of the scenario name only
one of each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.compat.differential.peer import Peer, Topic, Transcript
from tests.compat.differential.rights.endpoints import Endpoint
from tests.compat.differential.settling import await_applied
from tests.support.wire import Answer, Plain

CLUSTER_NAME: Final = "kafka-cluster"
HIDES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


class Right(NamedTuple):
    """An operation on the scenario's resources of one type."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"


class Entry(NamedTuple):
    """An entry for the scenario's user: a right on one resource, allowed or denied."""

    resource_type: int
    resource_name: str
    operation: int
    permission_type: int


@dataclass(frozen=True)
class Step:
    """The entries that the user has while the requests are sent once."""

    label: str
    allowed: tuple[Right, ...] = ()
    denied: tuple[Right, ...] = ()


def steps(rights: Sequence[Right]) -> Iterator[Step]:
    """Return the steps of a scenario: no right, some, one denied, all."""
    yield Step("lacks all")
    if len(rights) > 1:
        for right in rights:
            yield Step(f"has only {right}", (right,))
    described = tuple(Right(Operation.DESCRIBE, kind) for kind in HIDES if _hides(rights, kind))
    if described:
        yield Step("may describe", described)
    for right in rights:
        yield Step(f"denied {right}", tuple(rights), (right,))
    yield Step("has all", tuple(rights))


def _hides(rights: Sequence[Right], kind: ResourceType) -> bool:
    """Return whether the scenario's requests need rights on this type of resource, and the user has no
    DESCRIBE among them.
    """
    return (
        any(right.resource_type == kind for right in rights) and Right(Operation.DESCRIBE, kind) not in rights
    )


class Stage:
    """One endpoint, prepared for one user."""

    def __init__(self, endpoint: Endpoint, user: str, prefix: str) -> None:
        self.transcript = Transcript(prefix)
        self.principal = f"User:{user}"
        self.admin = Peer(endpoint.admin, prefix, self.transcript)
        self.user = Peer(endpoint.certified, prefix, self.transcript, tls=endpoint.certificates.context(user))
        self.step = ""
        self._entries: set[Entry] = set()

    def close(self) -> None:
        self.admin.close()
        self.user.close()

    # --- the resources

    def name(self, suffix: str) -> str:
        return self.admin.name(suffix)

    @cached_property
    def open(self) -> Topic:
        """The topic to which the access control entries apply."""
        return self.admin.topic("open")

    @cached_property
    def closed(self) -> Topic:
        """The topic to which no access control entry applies."""
        return self.admin.topic("closed")

    @property
    def topics(self) -> tuple[str, str, str, str]:
        """The names of four topics: open, closed, and two that do not exist, of which entries name the first."""
        return self.open.name, self.closed.name, self.name("missing"), self.name("hidden")

    def make_known(self) -> None:
        """Create both topics, and wait until the coordinators of groups know them."""
        assert self.topics
        await_applied(self.admin)

    @property
    def groups(self) -> tuple[str, str]:
        """The ids of two groups. The access control entries of the stage apply to the first one."""
        return self.name("group"), self.name("other-group")

    @property
    def transactional_ids(self) -> tuple[str, str]:
        """Two transactional ids. The access control entries of the stage apply to the first one."""
        return self.name("tid"), self.name("other-tid")

    @cached_property
    def node_id(self) -> int:
        return int(self.admin.wire.call("metadata", 12, topics=[]).fields["brokers"][0]["node_id"])

    # --- requests

    def call_in_any_order(self, api: str, version: int, rows: str, /, **request: Any) -> None:
        """Send a request of the user; the order of the answer's `rows` is left out of the comparison."""

        def converse() -> Answer:
            answer = self.user.wire.call(api, version, request)
            in_order = sorted(
                answer.fields[rows], key=lambda row: str(row.get("group_id", row.get("topic_name")))
            )
            return Answer({**answer.fields, rows: in_order}, answer.trailing)

        self.user.exchange(f"{api} v{version}", request, converse)

    # --- the entries

    def named_by(self, right: Right) -> tuple[str, ...]:
        match right.resource_type:
            case ResourceType.TOPIC:
                return self.name("open"), self.name("missing")
            case ResourceType.GROUP:
                return self.groups[:1]
            case ResourceType.TRANSACTIONAL_ID:
                return self.transactional_ids[:1]
            case _:
                return (CLUSTER_NAME,)

    def enter(self, step: Step) -> None:
        """Give the user exactly the entries of a step, and wait until the endpoint applies them."""
        self.step = step.label
        self.change(step.allowed, step.denied)

    def change(self, allowed: Sequence[Right] = (), denied: Sequence[Right] = ()) -> None:
        """Give the user exactly these rights, and wait until the endpoint applies them."""
        both = ((Permission.ALLOW, allowed), (Permission.DENY, denied))
        self.grant({
            Entry(right.resource_type, name, right.operation, permission)
            for permission, rights in both
            for right in rights
            for name in self.named_by(right)
        })  # fmt: skip

    def grant(self, wanted: set[Entry]) -> None:
        """Replace the user's entries by `wanted`."""
        made = [self._creation(entry) for entry in wanted - self._entries]
        gone = [self._filter(entry) for entry in self._entries - wanted]
        if gone:
            answer = self.admin.wire.call("delete_acls", 3, filters=gone).fields
            assert all(len(row["matching_acls"]) == 1 for row in answer["filter_results"]), answer
        if made:
            answer = self.admin.wire.call("create_acls", 3, creations=made).fields
            assert not any(row["error_code"] for row in answer["results"]), answer
        self._entries = wanted
        self.admin.until("describe_acls", 3, lambda answer: _described(answer) == wanted, self._of_the_user())

    def _creation(self, entry: Entry) -> Plain:
        whose = {"principal": self.principal, "host": "*", "resource_pattern_type": PatternType.LITERAL}
        return {**entry._asdict(), **whose}

    def _filter(self, entry: Entry) -> Plain:
        return {
            **self._of_the_user(),
            "resource_type_filter": entry.resource_type,
            "resource_name_filter": entry.resource_name,
            "operation": entry.operation,
            "permission_type": entry.permission_type,
        }

    def _of_the_user(self) -> Plain:
        return {
            "resource_type_filter": ResourceType.ANY,
            "resource_name_filter": None,
            "pattern_type_filter": PatternType.ANY,
            "principal_filter": self.principal,
            "host_filter": None,
            "operation": Operation.ANY,
            "permission_type": Permission.ANY,
        }


def _described(answer: Plain) -> set[Entry]:
    return {
        Entry(row["resource_type"], row["resource_name"], entry["operation"], entry["permission_type"])
        for row in answer["resources"]
        for entry in row["acls"]
    }


Ask = Callable[[Stage], object]
