"""One access control entry, and the filter that finds entries. Source: Kafka's AclBinding, AclBindingFilter."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.security.acls.codes import Operation, PatternType, Permission, ResourceType

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
    """The conditions that an entry must meet to be found. None and ANY match all values of a field.

    The pattern type ANY finds the name in literal and prefixed patterns; MATCH finds every pattern that applies to a
    resource of the name.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AclEntry) -> bool:
        """Return whether the filter finds the entry."""
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
