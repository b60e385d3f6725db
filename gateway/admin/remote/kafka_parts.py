"""Imports kafka-python in parts: a command needs one of its clients, or only its errors.

The package imports all of its clients, the requests of administrators, with the checksum a command line, and
what only a login, TLS or compressed batches need: a third of what `seqgate produce` takes. `install` lets the
packages of `PARTS` begin empty. A package takes a name from the module that has the name, when somebody first
asks for it. For any other name it is executed as it is written, so that a later release of kafka-python works
too, only slower.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

LATER: Final = ""
"""The place of a function for which the whole package is executed only when somebody calls the function."""
PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "crc32c": {"crc32c": "_crc32c"},
    "kafka": {
        "KafkaConsumer": "consumer.group",
        "KafkaProducer": "producer.kafka",
        "TopicPartition": "structs",
    },
    "kafka.metrics": {
        "AnonMeasurable": "measurable",
        "KafkaMetric": "kafka_metric",
        "MetricConfig": "metric_config",
        "MetricName": "metric_name",
        "Metrics": "metrics",
    },
    "kafka.metrics.stats": {
        "Avg": "avg",
        "Count": "count",
        "Max": "max_stat",
        "Rate": "rate",
        "Sensor": "sensor",
    },
    "kafka.net.sasl": {"get_sasl_mechanism": LATER},
    # every connection knows how very old brokers are asked
    "kafka.protocol.admin": {"ListGroupsRequest": "groups"},
    "kafka.protocol.consumer": {"OffsetFetchRequest": "group"},
    # only compressed batches, TLS, and packages in archives need these
    "snappy": {},
    "ssl": {},
    "tempfile": {},
    "zipfile": {},
    "zstandard": {},
}
"""Packages, and the modules below them that have the names which most commands ask for; none where most
commands ask for no name.
"""


def install() -> None:
    """Import the packages of PARTS in parts from now on. Call this before they are imported."""
    sys.meta_path.insert(0, _PartsFinder())


class _PartsFinder:
    """Finds the packages of PARTS."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _: object = None) -> ModuleSpec | None:
        """Return the spec of a package of PARTS; None for all others, which the next finder finds."""
        spec = PathFinder.find_spec(name, path) if name in PARTS else None
        if spec is not None:
            loader: Any = _InParts(spec.loader, PARTS[name]) if PARTS[name] else _Later(spec.loader)
            spec.loader = loader
        return spec


class _InParts:
    """Loads a package that takes its names from its modules; the loader of the `whole` does all else."""

    def __init__(self, whole: Any, parts: Mapping[str, str]) -> None:
        self._whole = whole
        self._parts = parts
        self._is_executed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    @staticmethod
    def create_module(_: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, package: ModuleType) -> None:
        """Let the package ask here for the names that it has not."""
        vars(package)["__getattr__"] = partial(self._named, package)

    def _named(self, package: ModuleType, name: str) -> Any:
        """Return what a package has under a name. Raises AttributeError. Takes no lock, because Python holds
        one for each module that it imports: two threads that both execute the package only import again.
        """
        place = self._parts.get(name)
        if place == LATER and not self._is_executed:
            return partial(self._call, package, name)
        if place:
            found = getattr(import_module(f"{package.__name__}.{place}"), name, None)
            if found is not None:
                return found
        elif "__path__" in vars(package) and self._has_module(package, name):
            return import_module(f"{package.__name__}.{name}")
        names = self._executed(package)
        if name not in names:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        return names[name]

    @staticmethod
    def _has_module(package: ModuleType, name: str) -> bool:
        return PathFinder.find_spec(f"{package.__name__}.{name}", package.__path__) is not None

    def _call(self, package: ModuleType, name: str, *arguments: Any) -> Any:
        return self._executed(package)[name](*arguments)

    def _executed(self, package: ModuleType) -> dict[str, Any]:
        """Return the names of the whole package."""
        if not self._is_executed:
            self._whole.exec_module(package)
            self._is_executed = True
        return vars(package)


class _Later:
    """Loads a module that is executed when somebody first asks for a name of it; the loader of the `whole`
    does all else. Other threads wait for the end: a class of `ssl` that is made twice refuses the objects of
    its twin. The lock is safe because none of these modules imports one that asks for a name of it.
    """

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._lock = threading.RLock()
        self._is_executed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return _Unread(spec.name)

    @staticmethod
    def exec_module(_: ModuleType) -> None:
        """Leave the module empty."""

    def execute(self, module: ModuleType) -> None:
        """Execute the module, once. Its own thread reads what there is while it runs."""
        with self._lock:
            if not self._is_executed:
                self._is_executed = True
                try:
                    self._whole.exec_module(module)
                except BaseException:
                    self._is_executed = False
                    raise
                module.__class__ = ModuleType


class _Unread(ModuleType):
    """A module that nobody has asked for a name yet."""

    def __getattribute__(self, name: str) -> Any:
        found = ModuleType.__getattribute__
        if not (name.startswith("__") and name.endswith("__")) or name in {"__all__", "__dict__"}:
            found(self, "__spec__").loader.execute(self)
        return found(self, name)
