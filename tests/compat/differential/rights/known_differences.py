"""The answers about rights in which Seqgate deliberately differs from Apache Kafka, and why."""

from __future__ import annotations

from tests.compat.differential.known_differences import ANSWERED, DURABLE, ELR, NO_FEATURES, KnownDifference

IDS_STAY_HIDDEN = "Kafka tells the id of a topic that the client may not read; here the answer has no id"

KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("cluster.api_versions[v*]", "logins.*"),
        "*.supported_features.*",
        NO_FEATURES,
        ("cluster.api_versions[v3]", "logins.versions_before_login[v3]"),
    ),
    KnownDifference(
        ("topics.create_*",), "*.configs.flush.messages.value", DURABLE, ("topics.create_by_*[v[57]]",)
    ),
    KnownDifference(
        ("topics.create_*",),
        "*.configs.min.insync.replicas.config_source",
        ELR,
        ("topics.create_by_*[v[57]]",),
    ),
    KnownDifference(("sharing.alter_share_group_offsets",), "*.responses.0.topic_id", IDS_STAY_HIDDEN),
    KnownDifference(("security.describe_scram_credentials_of_null",), "*", ANSWERED),
)
