"""Removes from a transcript the values that differ between two correct endpoints: addresses, ids, the time of
day.

Ids are renumbered in the order of their appearance, so that "the same id again" still compares.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tests.compat.differential.peer import Exchange, Transcript
from tests.support.batches import BatchView, read_batches
from tests.support.wire import CLIENT_ID, NO_TOPIC_ID, Plain

NOW_TOLERANCE_MS = 600_000
TIMES = {
    "log_append_time",
    "timestamp",
    "last_timestamp",
    "base_timestamp",
    "max_timestamp",
    "transaction_start_time",
}
NODES = {"node_id", "leader_id", "controller_id", "broker_id", "preferred_read_replica"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"}
ANY_VALUE = {"throttle_time", "port", "cluster_id", "usable_bytes", "total_bytes", "log_dir"}
TEXTS = {
    "error_message",
    "status_detail",
    "acknowledge_error_message",
    "batch_index_error_message",
    "documentation",
}
IDENTITY = (
    "name",
    "entity_type",
    "topic",
    "topic_id",
    "resource_name",
    "topic_name",
    "transactional_id",
    "subtopology_id",
    "partition_index",
    "partition",
    "index",
)
SENT_BY_MEMBERS = ("metadata", "member_metadata")
GENERATED_MEMBER_ID = re.compile(r"(?s)(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
IN_BASE64 = re.compile(r"[0-9A-Za-z_-]{22}")
IDENTITY_OF_NUMBERS = ("api_key", "node_id", "broker_id", "producer_id")


class Normaliser:
    """Normalises the transcript of one endpoint. Use one per transcript, because it remembers the ids that it
    met.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._met: dict[str, list[Any]] = {
            "node": [],
            "session": [],
            "topic id": [],
            "producer": [],
            "member": [],
            "client instance": [],
            "subscription": [],
        }
        self._generated: dict[str, str] = {}
        self._rules: dict[str, Callable[[Any], Any]] = {
            "topic_id": self._topic_id,
            "producer_id": self._producer_id,
            "session_id": lambda value: value and self._numbered("session", value),
            "next_topic_partition": self._value,
            "records": self._records,
            "member_id": self._member_id,
            "leader": self._member_id,
            "members": self._members,
            "groups": self._groups,
            "results": self._results,
            "subscribed_topic_names": lambda value: sorted(self._value(value)),
            "partitions_by_user_endpoint": lambda value: sorted(map(self._value, value), key=_endpoint),
            "topic_configs": lambda value: sorted(self._value(value), key=lambda row: str(row["key"])),
            "entries": self._quotas,
            "entity": lambda value: [self._value(part) for part in value],
            "active_producers": self._by_producer,
            "markers": self._by_producer,
            "matching_acls": lambda value: sorted(self._value(value), key=str),
            "acls": lambda value: sorted(self._value(value), key=str),
            # Kafka keeps a user's credentials in a table without order
            "credential_infos": lambda value: sorted(
                self._value(value), key=lambda row: str(row["mechanism"])
            ),
            "client_instance_id": lambda value: self._numbered("client instance", value),
            "subscription_id": lambda value: value and self._numbered("subscription", value),
            "requested_metrics": sorted,
            "mechanisms": sorted,  # Kafka keeps these values in a set, so their order has no meaning
            "transaction_states": self._transaction_states,
        }

    def exchanges(self) -> list[Plain]:
        """Return every exchange as plain values for the comparison."""
        return [self._exchange(exchange) for exchange in self._transcript.exchanges]

    def _exchange(self, exchange: Exchange) -> Plain:
        if exchange.answer is None:
            return {"label": exchange.label, "instead": exchange.instead}
        answer = exchange.answer
        if exchange.label.startswith("join_group") and not exchange.request["member_id"]:
            prefix = exchange.request["group_instance_id"] or CLIENT_ID
            self._generated[answer.get("member_id", "")] = prefix
        if exchange.only_own:
            answer = self._own(answer)
        return {"label": exchange.label, **self._value(answer)}

    def _own(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._own(inner) for key, inner in value.items() if key != "next_cursor"}
        if isinstance(value, list):
            return [self._own(item) for item in value if not self._foreign(item)]
        return value

    def _foreign(self, item: Any) -> bool:
        if not isinstance(item, dict):
            return False
        if "partitions" in item:
            name = item.get("name", item.get("topic", ""))
        elif "group_id" in item:
            name = item["group_id"]
        elif "resource_name" in item:
            name = item["resource_name"]
        elif "transactional_id" in item:
            name = item["transactional_id"]
        else:
            return False
        return not str(name).startswith(self._transcript.prefix)

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._field(key, inner) for key, inner in value.items()}
        if isinstance(value, list):
            return sorted_by_identity([self._value(item) for item in value])
        if isinstance(value, str):
            for topic_id, suffix in self._transcript.topic_names.items():
                value = value.replace(topic_id, f"<id of {suffix}>")
            return value.replace(self._transcript.prefix, "~")
        if isinstance(value, bytes):
            return value.replace(self._transcript.prefix.encode(), b"~")
        return value

    def _field(self, key: str, value: Any) -> Any:
        if key in self._rules and value is not None:
            return self._rules[key](value)
        if key in ANY_VALUE:
            return value if value in {None, -1} else f"<{key}>"
        if key == "finalized_features_epoch":
            return value if value < 0 else f"<{key}>"
        if key in TEXTS:
            return f"<{key}>" if value else value
        if key in TIMES and isinstance(value, int):
            return _moment(value)
        if key == "partitions" and isinstance(value, list) and all(isinstance(item, int) for item in value):
            return sorted(value)
        if key in NODES and isinstance(value, int):
            return self._node(value)
        if key in NODE_LISTS and isinstance(value, list):
            return [self._node(item) for item in value]
        return self._value(value)

    def _numbered(self, kind: str, value: Any) -> str:
        met = self._met[kind]
        if value not in met:
            met.append(value)
        return f"<{kind} {met.index(value) + 1}>"

    def _node(self, value: int) -> Any:
        return value if value < 0 else self._numbered("node", value)

    def _topic_id(self, value: str) -> str | None:
        if value == NO_TOPIC_ID:
            return None
        known = self._transcript.topic_names.get(value)
        return f"<id of {known}>" if known is not None else self._numbered("topic id", value)

    def _producer_id(self, value: int) -> Any:
        return self._numbered("producer", value) if value in self._transcript.producer_ids else value

    def _member_id(self, value: str) -> str:
        generated = GENERATED_MEMBER_ID.fullmatch(value)
        if generated is not None:
            return f"{generated[1]}-{self._numbered('member', value)}"
        # Kafka gives a classic member of a consumer group an id that does not begin with its instance or
        # client id
        if value in self._generated and IN_BASE64.fullmatch(value):
            return f"{self._generated[value]}-{self._numbered('member', value)}"
        return value

    def _members(self, value: list[Plain]) -> list[Plain]:
        """Sort members by their first appearance, then by their data: Kafka orders them by random ids."""
        if value and "member_epoch" in value[0]:
            return sorted((self._value(member) for member in value), key=lambda row: str(row["member_id"]))
        sent = [key for key in SENT_BY_MEMBERS if value and key in value[0]]
        met = list(self._met["member"])

        def order(member: Plain) -> tuple[int, list[bytes]]:
            known = met.index(member["member_id"]) if member["member_id"] in met else len(met)
            return known, [member[key] for key in sent]

        return [self._value(member) for member in (sorted(value, key=order) if sent else value)]

    def _results(self, value: list[Plain]) -> list[Plain]:
        """Sort deleted groups and altered SCRAM users. Described users keep their order, which has a meaning."""
        if value and "credential_infos" in value[0]:
            return [self._value(result) for result in value]
        return sorted(
            self._value(value), key=lambda result: (str(result.get("group_id")), str(result.get("user")))
        )

    def _by_producer(self, value: list[Plain]) -> list[Plain]:
        """Sort the producers of a partition, and the outcomes of markers: their order has no meaning. Kafka
        keeps them in a hash table of producer ids, where 16 may come before 15.
        """
        return sorted(self._value(value), key=lambda producer: str(producer["producer_id"]))

    def _quotas(self, value: list[Plain]) -> list[Plain]:
        """Sort described client quotas: their order follows from all entities, also those of other scenarios.

        The scenarios `client_quotas.order_*` compare the order where there are no others.
        """
        rows = [self._value(entry) for entry in value]
        is_a_description = rows and "values" in rows[0]
        return sorted(rows, key=lambda entry: str(entry["entity"])) if is_a_description else rows

    def _transaction_states(self, value: list[Plain]) -> list[Plain]:
        """Sort the partitions of a transaction: their order has no meaning.

        The producer id 0 stands for a missing transaction.
        """
        rows: list[Plain] = self._value(value)
        for row in rows:
            if row.get("error_code"):
                row["producer_id"] = None
            for topic in row.get("topics", ()):
                topic["partitions"].sort()
        return rows

    def _groups(self, value: list[Plain]) -> list[Plain]:
        """Sort the answer that lists all groups. An answer for requested groups keeps its order."""
        rows = [self._value(group) for group in value]
        is_a_list_of_all = rows and "protocol_type" in rows[0] and "members" not in rows[0]
        return sorted(rows, key=lambda group: str(group["group_id"])) if is_a_list_of_all else rows

    def _records(self, value: Any) -> Any:
        if not isinstance(value, bytes):
            return self._value(value)
        batches, cut = read_batches(value)
        return {"batches": [self._batch(batch) for batch in batches], "bytes of a cut batch": len(cut)}

    def _batch(self, batch: BatchView) -> Plain:
        seen = {key: self._field(key, inner) for key, inner in asdict(batch).items()}
        seen["payload"] = f"{len(batch.payload)} bytes, crc {zlib.crc32(batch.payload):08x}"
        if batch.crc_is_right:
            del seen["crc"]
        return seen


def _endpoint(row: Plain) -> tuple[str, int]:
    return row["user_endpoint"]["host"], row["user_endpoint"]["port"]


def _moment(value: int) -> Any:
    return "<now>" if abs(value - time.time() * 1000) < NOW_TOLERANCE_MS else value


def sorted_by_identity(items: list[Any]) -> list[Any]:
    """Sort lists whose order has no meaning in Kafka's protocol (topics, partitions, configs)."""

    def identity(item: Any) -> tuple[list[str], list[int]]:
        words = [str(item[key]).rjust(12) for key in IDENTITY if key in item]
        numbers = [item[key] for key in IDENTITY_OF_NUMBERS if isinstance(item.get(key), int)]
        return words, numbers

    if items and all(isinstance(item, dict) for item in items):
        return sorted(items, key=identity)
    return items
