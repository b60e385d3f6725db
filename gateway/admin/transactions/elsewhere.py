"""Says that other gateways coordinate transactions, too, and how to ask them. The control socket reaches one gateway only."""

from __future__ import annotations

from gateway.admin.request import ControlError, Elsewhere
from gateway.metadata.topic_names import TRANSACTION_STATE_TOPIC
from gateway.runtime.services import Services


def partitions_elsewhere(services: Services) -> list[int]:
    """Return the partitions of `__transaction_state` that other gateways lead, or that none leads now."""
    topic = services.topics.metadata_log.image.topics_by_name.get(TRANSACTION_STATE_TOPIC)
    brokers = services.node.brokers
    return [
        index
        for index, partition in sorted(topic.partitions.items() if topic is not None else ())
        if not brokers.leads(partition)
    ]


def check_all_here(services: Services) -> None:
    """Refuse a question about the transactions of all gateways. Raises ControlError."""
    if partitions_elsewhere(services):
        raise Elsewhere(f"other gateways coordinate transactions, too; {_advice(services)}")


def check_is_here(services: Services, transactional_id: str) -> None:
    """Refuse a question about a transactional id that another gateway coordinates. Raises ControlError."""
    node_id = services.coordinators.elsewhere.coordinator_of(transactional_id)
    if node_id is None:
        return
    if node_id < 0:
        raise ControlError(
            f"no live gateway coordinates transactional id {transactional_id} now; try again later"
        )
    raise Elsewhere(f"gateway {node_id} coordinates transactional id {transactional_id}; {_advice(services)}")


def _advice(services: Services) -> str:
    """Return how to ask the cluster."""
    address = next((place.shown for place in services.node.brokers.advertised.values()), "HOST:PORT")
    return f"ask the cluster with --bootstrap {address}"
