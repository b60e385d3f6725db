"""The answers about rights in which Seqgate deliberately differs from Apache Kafka, and why."""

from __future__ import annotations

from tests.compat.differential.known_differences import (
    DURABLE,
    ELR,
    NO_CLIENT_METRICS,
    NO_FEATURES,
    KnownDifference,
)

KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("*api_versions[v*]",), "*.supported_features.*", NO_FEATURES, ("cluster.api_versions[v3]",)
    ),
    KnownDifference(("configurations.describe_configs_of_other_kinds",), "17.*", NO_CLIENT_METRICS),
    KnownDifference(
        ("topics.create_*",), "*.configs.flush.messages.value", DURABLE, ("topics.create_by_*[v[57]]",)
    ),
    KnownDifference(
        ("topics.create_*",),
        "*.configs.min.insync.replicas.config_source",
        ELR,
        ("topics.create_by_*[v[57]]",),
    ),
)
