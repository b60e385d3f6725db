"""Warns when a topic that a streaming query reads was deleted and created again.

Spark's checkpoint knows topics by their names alone (`seqgate.spark_kafka_compat.checkpoint_topics`). `watch`
registers one listener for the queries of a session. When a query starts, Spark calls the listener before the
first micro batch: the listener finds the options of the Kafka sources in the plan and the directory of the
checkpoint, and compares the topic ids in the checkpoint with the endpoint's. While the query runs, the
listener compares at most once a second, and when the query has failed. Each recreated topic brings one
warning per run of the query. The query continues: only its owner knows whether it may.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.streaming.listener import StreamingQueryListener

from seqgate.spark_kafka_compat.checkpoint_topics import IDS_FILE, CheckpointTopics, Complaints, subscribed
from seqgate.spark_kafka_compat.partitions import topics_in
from seqgate.spark_kafka_compat.session import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
REMEDY = (
    "Start the query with a new checkpoint to read the new topic from its beginning. To continue all the "
    f"same, delete {IDS_FILE} from the checkpoint."
)
_BOOTSTRAP = "kafka.bootstrap.servers"
_KAFKA = "kafka"
_RELATION = "StreamingRelationV2"
_watched: set[str] = set()


def watch(spark: SparkSession) -> None:
    """Warn about recreated topics in the streaming queries of this session. A second call changes nothing."""
    if getattr(spark, "_jvm", None) is None:
        logger.info("a Spark Connect session can't keep topic ids: a recreated topic brings no warning")
        return
    session_id = spark._jsparkSession.sessionUUID()  # noqa: SLF001 - PySpark has no public name for the id
    if session_id not in _watched:
        spark.streams.addListener(TopicWatch(spark))
        _watched.add(session_id)


class TopicWatch(StreamingQueryListener):
    """The listener of one session. No error of the listener reaches a query."""

    def __init__(self, spark: SparkSession, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._session = spark
        self._monotonic = monotonic
        self._queries: dict[UUID, _Query] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Compare the topics of the checkpoint, before the first micro batch."""
        try:
            query = _query(self._session, str(event.id))
            if query is not None:
                self._queries[event.runId] = query
                query.warn(query.kept.complaints_at_start(query.topics))
        except SparkCompatError as error:
            logger.info("the topics of query %s are not compared: %s", event.id, error)
        except Exception:
            logger.exception("the topics of query %s can't be compared", event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Compare the topics that a micro batch has read."""
        query = self._queries.get(event.progress.runId)
        if query is None:
            return
        query.topics = topics_in(source.endOffset for source in event.progress.sources)
        self._compare_in_time(query)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Compare the topics that were not compared after a micro batch which came too soon."""
        query = self._queries.get(event.runId)
        if query is not None:
            self._compare_in_time(query)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query; if it failed, compare its topics, because a recreated topic may be why."""
        query = self._queries.pop(event.runId, None)
        if query is not None and event.exception is not None:
            self._compare(query)

    def _compare_in_time(self, query: _Query) -> None:
        now_s = self._monotonic()
        if now_s >= query.next_check_s:
            query.next_check_s = now_s + CHECK_EVERY_S
            self._compare(query)

    def _compare(self, query: _Query) -> None:
        try:
            query.warn(query.kept.complaints(query.topics or ()))
        except Exception:
            logger.exception("the topics of %s can't be compared", query.kept.checkpoint)


@dataclass
class _Query:
    """A run of a query. `topics` are None before the first micro batch of a pattern."""

    kept: CheckpointTopics
    topics: Collection[str] | None
    next_check_s: float = 0.0
    warned: set[str] = field(default_factory=set)

    def warn(self, complaints: Complaints) -> None:
        for topic, complaint in complaints.items():
            if topic not in self.warned:
                self.warned.add(topic)
                logger.warning(complaint)


def _query(spark: SparkSession, query_id: str) -> _Query | None:
    """Return what to compare for a query that starts; None unless it reads one Kafka endpoint."""
    running: Any = spark.streams.get(query_id)
    execution = running._jsq.streamingQuery()  # noqa: SLF001 - PySpark shows neither plan nor checkpoint
    sources = list(kafka_sources(execution.analyzedPlan()))
    if len({options[_BOOTSTRAP] for options in sources}) != 1:
        return None
    chosen = [subscribed(options) for options in sources]
    topics = None if None in chosen else {topic for names in chosen for topic in names or ()}
    options = sources[0]
    kept = CheckpointTopics(
        spark, options[_BOOTSTRAP], execution.resolvedCheckpointRoot(), options, remedy=REMEDY
    )
    return _Query(kept, topics)


def kafka_sources(plan: Any) -> list[dict[str, str]]:
    """Return the options of each Kafka source in a plan of Spark's Java, by lower-case names."""
    found: list[dict[str, str]] = []
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.nodeName() == _RELATION and leaf.sourceName() == _KAFKA:
            given = leaf.extraOptions().asCaseSensitiveMap()
            found.append({str(name).lower(): str(given[name]) for name in given})
    return found
