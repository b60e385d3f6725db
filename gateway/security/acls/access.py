"""The port through which handlers ask whether a principal may carry out an operation on a resource."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.security.acls.codes import Operation, ResourceType

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""


class Access(Protocol):
    """Decides about requests. Source: Kafka's Authorizer."""

    @property
    def is_on(self) -> bool:
        """Whether there is an authorizer; without one everything is allowed."""

    @property
    def generation(self) -> int:
        """A number that changes with every change of a decision, so that a caller can detect that a
        remembered decision is out of date.
        """

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the principal at this address may carry out the operation on the resource."""

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether there may be a resource of the type on which the principal may carry out the operation.

        Source: Kafka's Authorizer.authorizeByResourceType.
        """


class EverythingAllowed:
    """The access of a gateway without an authorizer."""

    is_on = False
    generation = 0

    def allows(
        self,
        principal: str,  # noqa: ARG002 - everybody may
        host: str,  # noqa: ARG002 - from everywhere
        operation: Operation,  # noqa: ARG002 - do everything
        resource_type: ResourceType,  # noqa: ARG002 - with everything
        name: str,  # noqa: ARG002 - whatever it is called
    ) -> bool:
        """Return True."""
        return True

    def allows_some(
        self,
        principal: str,  # noqa: ARG002 - everybody may
        host: str,  # noqa: ARG002 - from everywhere
        operation: Operation,  # noqa: ARG002 - do everything
        resource_type: ResourceType,  # noqa: ARG002 - with everything
    ) -> bool:
        """Return True."""
        return True
