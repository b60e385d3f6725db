"""The one list of metrics, by subject. The exposition, docs/metrics.md and the tests read it."""

from __future__ import annotations

from typing import Final

from gateway.metrics.metric import Metric, Subject
from gateway.metrics.subjects import (
    bucket,
    clients,
    groups,
    limits,
    node,
    producers,
    requests,
    storage,
    topics,
    transactions,
)

SUBJECTS: Final[tuple[Subject, ...]] = (
    node.SUBJECT,
    requests.SUBJECT,
    topics.SUBJECT,
    producers.SUBJECT,
    groups.SUBJECT,
    transactions.SUBJECT,
    clients.SUBJECT,
    storage.SUBJECT,
    bucket.SUBJECT,
    limits.SUBJECT,
)
METRICS: Final[dict[str, Metric]] = {
    metric.name: metric for subject in SUBJECTS for metric in subject.metrics
}
