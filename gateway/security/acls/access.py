"""The port through which handlers ask whether a principal may carry out an operation on a resource.

The codes of access control lists on the wire and in the metadata log.

Source: Kafka's AclOperation, ResourceType, PatternType, AclPermissionType.

One access control entry, and the filter that finds entries. Source: Kafka's AclBinding, AclBindingFilter.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""


class Access(Protocol):
    """Decides about requests. Source: Kafka's Authorizer."""

    @property
    def is_on(self) -> bool:
        """Whether there is an authorizer; without one everything is allowed."""

    @property
    def generation(self) -> int:
        """A number that changes with every change of a decision: cached ones may then be out of date."""

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the principal at this address may carry out the operation on the resource."""

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether there may be a resource of the type on which the principal may carry out the
        operation. Source: Kafka's Authorizer.authorizeByResourceType.
        """


class EverythingAllowed:
    """The access of a gateway without an authorizer."""

    is_on = False
    generation = 0

    def allows(self, *_: object) -> bool:
        return True

    allows_some = allows


class Operation(enum.IntEnum):
    """A right on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(enum.IntEnum):
    """The kind of a resource that entries are about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED: Final[Mapping[ResourceType, Sequence[Operation]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.ALTER,
        *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.CLUSTER_ACTION,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations on each kind of resource, without ALL. Source: Kafka's AclEntry.supportedOperations."""


class PatternType(enum.IntEnum):
    """The kind of pattern by which an entry names its resources; only filters may have `ANY` and `MATCH`."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(enum.IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


EVERYBODY: Final = "User:*"
"""The principal of entries about all principals."""
WILDCARD: Final = "*"
"""The literal name of entries about all resources of a type, and the host of entries about all addresses."""


class AclEntry(NamedTuple):
    """Allows or denies one principal one operation on the resources of a pattern."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """`User:a may READ topic orders* from *`; a prefix ends with a star."""
        may = "may" if self.permission is Permission.ALLOW else "may not"
        kind = self.resource_type.name.lower().replace("_", " ")
        star = WILDCARD if self.pattern_type is PatternType.PREFIXED else ""
        return f"{self.principal} {may} {self.operation.name} {kind} {self.name}{star} from {self.host}"


class AclFilter(NamedTuple):
    """The conditions that an entry must meet to be found. None and ANY match all values of a field. As
    pattern type, ANY finds the name in literal and prefixed patterns, MATCH every pattern that applies to it.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AclEntry) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self._finds_pattern(entry)
        )

    def _finds_pattern(self, entry: AclEntry) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == entry.name
        if entry.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(entry.name)
        return entry.name in (self.name, WILDCARD)
