"""An access that allows what a test lists, for tests of handlers."""

from __future__ import annotations

from seqgate.gateway.security.acls.access import Operation, ResourceType


class Rights:
    """Allows the listed operations on resources, to every principal; a change counts at once."""

    is_on = True

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self.allowed = set(allowed)
        self.generation = 0

    def allow(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        self.allowed.add((operation, resource_type, name))
        self.generation += 1

    def deny(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        self.allowed.discard((operation, resource_type, name))
        self.generation += 1

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        return (operation, resource_type, name) in self.allowed

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return any(found[:2] == (operation, resource_type) for found in self.allowed)
