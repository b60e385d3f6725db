"""A broker in a thread of a test's own process, on a free port; the names that tests import.

    from seqgate.testing import Broker

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

pytest finds the fixtures `seqgate`, `seqgate_topic` and others without an import; docs/testing.md lists all.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqgate.gateway.testing import (
        CLUSTER_SETTINGS,
        SETTINGS,
        Broker,
        BrokerProcess,
        Cluster,
        Fault,
        Faults,
        Kind,
        StoredProducer,
        StoredRecord,
    )
else:
    from seqgate.gateway.testing import __dir__, __getattr__  # noqa: F401 - a name imports its module

__all__ = [
    "CLUSTER_SETTINGS",
    "SETTINGS",
    "Broker",
    "BrokerProcess",
    "Cluster",
    "Fault",
    "Faults",
    "Kind",
    "StoredProducer",
    "StoredRecord",
]
