"""What an API reaches: the row of an API names one of these, and its handler's parameter has the same record."""

from __future__ import annotations

from gateway.runtime.services import (
    CoordinatorServices,
    NodeServices,
    PartitionServices,
    Services,
    TopicServices,
)


def node(services: Services) -> NodeServices:
    """Reach the node and nothing else."""
    return services.node


def partitions(services: Services) -> PartitionServices:
    """Reach the partitions."""
    return services.partitions


def topics(services: Services) -> TopicServices:
    """Reach the metadata of topics."""
    return services.topics


def coordinators(services: Services) -> CoordinatorServices:
    """Reach the coordinators."""
    return services.coordinators


def everything(services: Services) -> Services:
    """Reach several records."""
    return services
