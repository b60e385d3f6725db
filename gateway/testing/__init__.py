"""A broker in a thread of a test's own process, on a free port: it starts in about ten milliseconds, and
fails on purpose.

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

`seqgate.gateway.pytest_plugin` has the fixtures for pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from seqgate.gateway.testing.broker import SETTINGS, Broker
    from seqgate.gateway.testing.broker_process import BrokerProcess
    from seqgate.gateway.testing.cluster import CLUSTER_SETTINGS, Cluster
    from seqgate.gateway.testing.faults import Fault, Faults, Kind
    from seqgate.gateway.testing.stored import StoredProducer, StoredRecord

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

_MODULES: Final = {
    "CLUSTER_SETTINGS": "cluster",
    "SETTINGS": "broker",
    "Broker": "broker",
    "BrokerProcess": "broker_process",
    "Cluster": "cluster",
    "Fault": "faults",
    "Faults": "faults",
    "Kind": "faults",
    "StoredProducer": "stored",
    "StoredRecord": "stored",
}
"""The modules of the names, imported with the first use: a test control needs few of them."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
