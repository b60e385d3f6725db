"""The services that a handler may use: each row of the API table names one of these functions."""

from __future__ import annotations

from gateway.runtime.services import (
    CoordinatorServices,
    NodeServices,
    PartitionServices,
    SecurityServices,
    Services,
    TopicServices,
)
from gateway.runtime.telemetry.telemetry import Telemetry


def node(services: Services) -> NodeServices:
    """Return the services of the node itself."""
    return services.node


def partitions(services: Services) -> PartitionServices:
    """Return the services of partitions."""
    return services.partitions


def topics(services: Services) -> TopicServices:
    """Return the services of topics' metadata."""
    return services.topics


def coordinators(services: Services) -> CoordinatorServices:
    """Return the coordinators."""
    return services.coordinators


def security(services: Services) -> SecurityServices:
    """Return the services of delegation tokens."""
    return services.security


def telemetry(services: Services) -> Telemetry:
    """Return the telemetry of clients."""
    return services.telemetry


def everything(services: Services) -> Services:
    """Return all services, for handlers that need several kinds."""
    return services
