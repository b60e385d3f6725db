"""The entries and filters that the options of `seqgate acls` stand for. Source: Kafka's AclCommand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.security.acls.access import CLUSTER_NAME
from gateway.security.acls.codes import Operation, PatternType, Permission, ResourceType
from gateway.security.acls.entry import EVERYBODY, WILDCARD, AclEntry, AclFilter

Resource = tuple[ResourceType, str]

_PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
_IDEMPOTENT: Final = {ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,)}


class WrongOptions(ValueError):
    """Options from which no entries can be made. The message says which option is missing or wrong."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The principals of entries, each allowed or denied from some hosts; without hosts, from everywhere."""

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()

    def __iter__(self) -> Iterator[tuple[str, str, Permission]]:
        """Yield principal, host and permission of each entry. Raises WrongOptions."""
        if self.allowed_hosts and not self.allowed:
            raise WrongOptions("--allow-host needs --allow-principal")
        if self.denied_hosts and not self.denied:
            raise WrongOptions("--deny-host needs --deny-principal")
        for principals, hosts, permission in (
            (self.allowed, self.allowed_hosts, Permission.ALLOW),
            (self.denied, self.denied_hosts, Permission.DENY),
        ):
            for principal in principals:
                if ":" not in principal:
                    raise WrongOptions(
                        f"the principal {principal!r} must have the form User:NAME; {EVERYBODY} is everybody"
                    )
                for host in hosts or (WILDCARD,):
                    yield principal, host, permission


@dataclass(frozen=True, slots=True)
class Actions:
    """The operations of the wanted entries: operations that an option names, and the operations that a producer, an idempotent producer or a consumer needs."""

    operations: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def names_any(self) -> bool:
        """Whether an option names an operation."""
        return bool(self.operations) or self.producer or self.consumer or self.idempotent

    def on(self, resources: Sequence[Resource]) -> list[tuple[Resource, Operation]]:
        """Return the operations on each resource. Raises WrongOptions."""
        kinds = {kind for kind, _ in resources}
        if (self.producer or self.consumer) and ResourceType.TOPIC not in kinds:
            raise WrongOptions("--producer and --consumer need --topic")
        if self.consumer and ResourceType.GROUP not in kinds:
            raise WrongOptions("--consumer needs --group")
        rights = [
            rights
            for rights, is_asked in (
                (_PRODUCER, self.producer),
                (_CONSUMER, self.consumer),
                (_IDEMPOTENT, self.idempotent),
            )
            if is_asked
        ]
        resources = list(resources)
        if self.idempotent and ResourceType.CLUSTER not in kinds:
            resources.append((ResourceType.CLUSTER, CLUSTER_NAME))
        named = [parse_operation(text) for text in self.operations]
        found: dict[tuple[Resource, Operation], None] = {}
        for resource in resources:
            operations = [*named, *(each for one in rights for each in one.get(resource[0], ()))]
            found.update(dict.fromkeys((resource, operation) for operation in operations))
        if not found:
            raise WrongOptions("name an --operation, or --producer, --consumer or --idempotent")
        return list(found)


def parse_operation(text: str) -> Operation:
    """Return the operation of this name, such as Read, DescribeConfigs or describe-configs. Raises WrongOptions."""
    plain = _plain(text)
    for operation in Operation:
        if operation >= Operation.ALL and _plain(operation.name) == plain:
            return operation
    names = ", ".join(each.name for each in Operation if each >= Operation.ALL)
    raise WrongOptions(f"there is no operation {text}; choose from {names}")


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def entries(
    resources: Sequence[Resource], pattern_type: PatternType, holders: Holders, actions: Actions
) -> list[AclEntry]:
    """Return the entries of all resources, holders and operations. Raises WrongOptions."""
    if not resources and not actions.idempotent:
        raise WrongOptions(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or --user"
        )
    wanted = [
        AclEntry(kind, name, _pattern(kind, pattern_type), principal, host, operation, permission)
        for (kind, name), operation in actions.on(resources)
        for principal, host, permission in holders
    ]
    if not wanted:
        raise WrongOptions("name an --allow-principal or a --deny-principal")
    return wanted


def _pattern(kind: ResourceType, pattern_type: PatternType) -> PatternType:
    return PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type


def filters(
    resources: Sequence[Resource], pattern_type: PatternType, principal: str | None
) -> list[AclFilter]:
    """Return filters that find all entries of these resources; without resources, the entries of every resource."""
    if not resources:
        return [AclFilter(pattern_type=pattern_type, principal=principal)]
    return [AclFilter(kind, name, pattern_type, principal) for kind, name in resources]


def filter_of(entry: AclEntry) -> AclFilter:
    """Return the filter that finds one entry."""
    return AclFilter(*entry)
