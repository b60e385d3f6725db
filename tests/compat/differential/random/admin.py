"""Topics and their configurations: created, altered, enlarged, described and deleted, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.support.wire import NO_TOPIC_ID, Plain

TOPIC_RESOURCE = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
number = one_of(0, 1, 2)
partitions = one_of(1, 3, -1, 0, 5)
CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("retention.ms", "1000"),
    ("retention.ms", "-5"),
    ("retention.bytes", "-5"),
    ("retention.bytes", "many"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "drop"),
    ("max.message.bytes", "2000"),
    ("segment.bytes", "14"),
    ("segment.ms", "0"),
    ("message.timestamp.type", "LogAppendTime"),
    ("no.such", "1"),
    ("retention.ms", None),
)


class Admin(World):
    family = "admin"
    table: ClassVar = {
        "create": (
            6,
            drawn(number, partitions, one_of(1, -1, 3), one_of(None, None, *CONFIGS), one_of(4, 5, 7)),
        ),
        "validate": (2, drawn(number, partitions, one_of(None, *CONFIGS))),
        "delete": (2, drawn(number, one_of(1, 5, 6))),
        "grow": (3, drawn(number, one_of(0, 1, 2, 4, 7), one_of(True, False))),
        "alter": (3, drawn(number, one_of(*CONFIGS), one_of(0, 1, 2))),
        "change": (6, drawn(number, one_of(*CONFIGS), one_of(SET, SET, DELETE, APPEND, SUBTRACT))),
        "describe": (3, drawn(number, one_of(1, 4))),
        "metadata": (3, drawn(number, one_of(4, 9, 12))),
    }
    length = 20

    def _name(self, number: int) -> str:
        return self.peer.name(f"a{number}")

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.turns = 0

    def _settle(self) -> None:
        """Wait until the broker knows of all changes: Kafka's learns of them in the background, in their
        order.
        """
        self.turns += 1
        wanted = str(1_000_000 + self.turns)
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": self.topics[0].name}
        change = {"name": "flush.ms", "config_operation": SET, "value": wanted}
        self.peer.wire.call(
            "incremental_alter_configs", 1, resources=[{**resource, "configs": [change]}], validate_only=False
        )

        def is_there(answer: Plain) -> bool:
            return any(row["value"] == wanted for row in answer["results"][0]["configs"])

        asked = {"resources": [{**resource, "configuration_keys": ["flush.ms"]}]}
        self.peer.until("describe_configs", 4, is_there, asked)

    def _create(
        self,
        number: int,
        count: int,
        replicas: int,
        config: tuple[str, str | None] | None,
        version: int,
        **more: bool,
    ) -> None:
        configs = [] if config is None else [{"name": config[0], "value": config[1]}]
        wanted = {
            "name": self._name(number),
            "num_partitions": count,
            "replication_factor": replicas,
            "configs": configs,
        }
        self.peer.call("create_topics", version, topics=[wanted], timeout=10_000, **more)
        self._settle()

    def create(
        self, number: int, count: int, replicas: int, config: tuple[str, str | None] | None, version: int
    ) -> None:
        self._create(number, count, replicas, config, version)

    def validate(self, number: int, count: int, config: tuple[str, str | None] | None) -> None:
        self._create(number, count, 1, config, 7, validate_only=True)

    def delete(self, number: int, version: int) -> None:
        name = self._name(number)
        topics = [{"name": name, "topic_id": NO_TOPIC_ID}]
        self.peer.call("delete_topics", version, topics=topics, topic_names=[name], timeout=5_000)
        self._settle()

    def grow(self, number: int, count: int, validates: bool) -> None:
        wanted = [{"name": self._name(number), "count": count, "assignments": None}]
        self.peer.call("create_partitions", 3, topics=wanted, timeout=5_000, validate_only=validates)
        self._settle()

    def alter(self, number: int, config: tuple[str, str | None], version: int) -> None:
        configs = [{"name": config[0], "value": config[1]}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": self._name(number), "configs": configs}
        self.peer.call("alter_configs", version, resources=[resource], validate_only=False)
        self._settle()

    def change(self, number: int, config: tuple[str, str | None], operation: int) -> None:
        configs = [{"name": config[0], "config_operation": operation, "value": config[1]}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": self._name(number), "configs": configs}
        self.peer.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        self._settle()

    def describe(self, number: int, version: int) -> None:
        keys = sorted({name for name, _ in CONFIGS})
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": self._name(number),
            "configuration_keys": keys,
        }
        self.peer.call("describe_configs", version, resources=[resource], include_synonyms=False)

    def metadata(self, number: int, version: int) -> None:
        asked = [{"name": self._name(number), "topic_id": NO_TOPIC_ID}]
        self.peer.call("metadata", version, topics=asked, allow_auto_topic_creation=False)

    def finish(self) -> None:
        for number in range(3):
            self.describe(number, 4)
            self.metadata(number, 12)
