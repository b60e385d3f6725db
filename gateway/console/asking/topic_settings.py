"""A few settings of all topics, for pages that list the topics with one of them. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.admin import ConfigResource, ConfigResourceType

from gateway.admin.remote.cluster import Cluster
from gateway.console.asking.cache import Cache
from gateway.console.asking.topic_list import topic_lines

KEPT_S: Final = 5.0
TOPICS_AT_ONCE: Final = 500
"""Topics in one request; the rest go with the next one."""

Settings = Mapping[str, str]

_known: Final[Cache[dict[str, Settings]]] = Cache(KEPT_S)


def topic_settings(cluster: Cluster, names: Sequence[str]) -> dict[str, Settings]:
    """Return these settings of each topic that is not internal, as far as the cluster knows them.

    Apache Kafka does not know the settings of Seqgate; its topics have none of them.
    """
    key = (cluster.addresses, tuple(names))
    return _known.get(cluster.reached.security, key, lambda: _asked(cluster, names))


def _asked(cluster: Cluster, names: Sequence[str]) -> dict[str, Settings]:
    topics = [line.name for line in topic_lines(cluster) if not line.is_internal]
    found: dict[str, Settings] = {}
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        wanted = [
            ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names))
            for topic in topics[first : first + TOPICS_AT_ONCE]
        ]
        answer: dict[str, Any] = cluster.admin.describe_configs(wanted, config_filter="all")
        for topic, configs in answer.get("topic", {}).items():
            found[topic] = {
                name: str(entry["value"])
                for name, entry in configs.items()
                if name in names and entry["value"] is not None
            }
    return found
