"""The ids of the topics that a checkpoint's offsets belong to, in a file of their own beside Spark's files.

Spark's checkpoint stores offsets by the topic's name alone. When a topic is deleted and created again under
its name, Spark continues at the offsets of the old topic, and skips the records of the new topic before them,
or fails for ever. A topic id (KIP-516) tells the two topics apart.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from seqgate.spark_kafka_compat.options import OptionValue
from seqgate.spark_kafka_compat.partitions import (
    PartitionRanges,
    parse_all_offsets,
    partitions_of,
    topic_ids_of,
)
from seqgate.spark_kafka_compat.positions import TopicPartition
from seqgate.spark_kafka_compat.session import (
    EndpointError,
    MissingTopicError,
    RecreatedTopicError,
    SparkCompatError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

IDS_FILE = "topic-ids.json"
LAND_ELSEWHERE = "Land the topic under another path with a checkpoint of its own."
_OFFSETS_FOLDER = "offsets"
_SINK_LOG = "_spark_metadata"
_changing_ids = threading.Lock()
"""Held while stored ids are read, compared and replaced: Spark's threads tell of an earlier run's progress
while the next run starts.
"""

Complaints = dict[str, str]
"""A sentence for each topic that the checkpoint's offsets do not fit."""


class CheckpointTopics:
    """A checkpoint's topics. `check` refuses one that was recreated since; `remedy` ends the sentences."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        checkpoint: str,
        options: Mapping[str, OptionValue],
        *,
        remedy: str = LAND_ELSEWHERE,
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._remedy = remedy
        self.options = options
        self.checkpoint = checkpoint.rstrip("/")
        self._files = _Files(spark) if getattr(spark, "_jvm", None) is not None else None
        self._known: dict[str, str] = {}
        if self._files is None:
            logger.warning("a Spark Connect session can't keep topic ids: a recreated topic is not noticed")

    def check_start(self, topics: Collection[str] | None) -> None:
        """Raise `RecreatedTopicError` for the first of `complaints_at_start`. Raises `EndpointError`."""
        _refuse(self.complaints_at_start(topics))

    def check_sink(self, path: str) -> None:
        """Raise `SparkCompatError` where the files under `path` have later micro batches than the checkpoint.

        Spark's file sink writes nothing for a micro batch that its log has, by its number alone. Spark stores
        the offsets of a micro batch first, so the log of a sink is never ahead of its own checkpoint.
        """
        if self._files is None:
            return
        written = newest_batch(self._files.names(f"{path.rstrip('/')}/{_SINK_LOG}"))
        begun = newest_batch(self._files.names(f"{self.checkpoint}/{_OFFSETS_FOLDER}"))
        if written is not None and (begun is None or written > begun):
            raise SparkCompatError(
                f"The files under {path} belong to another or a newer checkpoint than {self.checkpoint}: "
                f"Spark would write nothing up to micro batch {written}, and lose its records. Land under "
                "another path."
            )

    def check(self, topics: Collection[str]) -> None:
        """Raise `RecreatedTopicError` for the first of `complaints`."""
        _refuse(self.complaints(topics))

    def complaints_at_start(self, topics: Collection[str] | None) -> Complaints:
        """Compare the topics before a query starts; store the ids of the others. Raises `EndpointError`.
        `topics` are the names that the query subscribes to, or None when it subscribes by pattern.
        """
        if self._files is None:
            return {}
        stored = self._stored_offsets(self._files)
        read = {place.topic for place in stored}
        found = self._found(read, must_exist=False) if topics is None else self._found(topics)
        with _changing_ids:
            self._read_again(self._files)
            complaints = self._compared(found.topic_ids, read)
            unchecked = {place: offset for place, offset in stored.items() if place.topic not in self._known}
            complaints |= past_the_end(unchecked, found.ranges, self.checkpoint, self._remedy)
            self._keep(self._files, found.topic_ids, complaints)
        return complaints

    def complaints(self, topics: Collection[str]) -> Complaints:
        """Compare topics of a running query; store their ids. An unreachable endpoint proves nothing."""
        if self._files is None:
            return {}
        topic_ids: dict[str, UUID] = {}
        for topic in sorted(topics):
            try:
                topic_ids |= topic_ids_of(self._spark, self._bootstrap, [topic], self.options)
            except EndpointError:
                continue  # the topic is gone, which Spark itself reports
        with _changing_ids:
            self._read_again(self._files)
            complaints = self._compared(topic_ids, topic_ids)
            # The directory of a temporary checkpoint is deleted when its query ends, and must not come back.
            if self._files.exists(self.checkpoint):
                self._keep(self._files, topic_ids, complaints)
        return complaints

    def _found(self, topics: Collection[str], *, must_exist: bool = True) -> PartitionRanges:
        if must_exist:
            return partitions_of(self._spark, self._bootstrap, sorted(topics), self.options)
        merged = PartitionRanges({}, {})
        for topic in sorted(topics):
            try:
                found = self._found([topic])
            except MissingTopicError:
                continue  # Spark itself reports that the topic is gone
            merged.ranges.update(found.ranges)
            merged.topic_ids.update(found.topic_ids)
        return merged

    def _read_again(self, files: _Files) -> None:
        """Read the stored ids. Call this after the endpoint was asked: a later run of the query may have
        stored the id of a topic that was deleted since, and a comparison that comes late must not replace it.
        """
        self._known = files.read_ids(f"{self.checkpoint}/{IDS_FILE}")

    def _compared(self, topic_ids: Mapping[str, UUID], read: Collection[str]) -> Complaints:
        return {
            topic: f"The topic {topic} was deleted and created again since {self.checkpoint} stored its "
            f"offsets, which belong to the old topic. {self._remedy}"
            for topic in sorted(self._known.keys() & topic_ids.keys() & set(read))
            if self._known[topic] != str(topic_ids[topic])
        }

    def _keep(self, files: _Files, topic_ids: Mapping[str, UUID], complaints: Complaints) -> None:
        fit = {topic: str(found) for topic, found in topic_ids.items() if topic not in complaints}
        known = self._known | fit
        if known != self._known:
            files.write_ids(f"{self.checkpoint}/{IDS_FILE}", known)
            self._known = known

    def _stored_offsets(self, files: _Files) -> dict[TopicPartition, int]:
        """Return the offsets of the checkpoint's last micro batch; none for a new checkpoint."""
        newest = newest_batch(files.names(f"{self.checkpoint}/{_OFFSETS_FOLDER}"))
        if newest is None:
            return {}
        return parse_all_offsets(files.read(f"{self.checkpoint}/{_OFFSETS_FOLDER}/{newest}") or "")


def newest_batch(names: Iterable[str]) -> int | None:
    """Return the largest micro batch among the files of one of Spark's logs, `N` and `N.compact`."""
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


def subscribed(options: Mapping[str, OptionValue]) -> list[str] | None:
    """Return the topics that options of a source name; None when a pattern chooses them. Raises
    `SparkCompatError` for an `assign` that is no JSON object.
    """
    if "subscribe" in options:
        return [name.strip() for name in str(options["subscribe"]).split(",")]
    assigned = options.get("assign")
    if assigned is None:
        return None
    if isinstance(assigned, Mapping):
        return list(assigned)
    try:
        found = json.loads(str(assigned))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SparkCompatError(f'assign must be JSON such as {{"orders": [0, 1]}}, not {assigned!r}.')
    return list(found)


def past_the_end(
    stored: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    checkpoint: str,
    remedy: str,
) -> Complaints:
    """Return a complaint for each topic with a stored offset that its partition does not have."""
    complaints: Complaints = {}
    for place, offset in sorted(stored.items()):
        _, end = ranges.get(place, (0, offset))
        if offset > end:
            complaints.setdefault(
                place.topic,
                f"{checkpoint} continues {place} at offset {offset:,}, but the partition ends at {end:,}: "
                f"the topic was deleted and created again, or lost records. {remedy}",
            )
    return complaints


def _refuse(complaints: Complaints) -> None:
    for complaint in complaints.values():
        raise RecreatedTopicError(complaint)


class _Files:
    """The files of a checkpoint, through the file systems of Spark's own Java (Hadoop's `FileSystem`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's file systems
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._configuration), place

    def exists(self, path: str) -> bool:
        system, place = self._at(path)
        return bool(system.exists(place))

    def names(self, folder: str) -> list[str]:
        system, place = self._at(folder)
        return (
            [status.getPath().getName() for status in system.listStatus(place)]
            if system.exists(place)
            else []
        )

    def read(self, path: str) -> str | None:
        system, place = self._at(path)
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def read_ids(self, path: str) -> dict[str, str]:
        """Return the stored ids. A kill amid `write_ids` leaves them under the temporary name."""
        for name in (path, f"{path}.tmp"):
            text = self.read(name)
            if text is not None:
                try:
                    return dict(json.loads(text))
                except ValueError:
                    logger.warning("%s is damaged and is written again", name)
        return {}

    def write_ids(self, path: str, ids: Mapping[str, str]) -> None:
        """Replace the file of topic ids: write a temporary file and rename it."""
        system, place = self._at(path)
        _, written = self._at(f"{path}.tmp")
        stream = system.create(written, True)
        try:
            stream.write(bytearray(json.dumps(ids, indent=1, sort_keys=True).encode()))
        finally:
            stream.close()
        if system.exists(place):
            system.delete(place, False)
        if not system.rename(written, place):
            raise OSError(f"{path}.tmp can't be renamed to {path}")
