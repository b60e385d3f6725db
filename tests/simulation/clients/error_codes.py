"""Kafka's error codes as simulated clients treat them (org.apache.kafka.common.protocol.Errors)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.unknown_producer_id,
        ErrorCode.producer_fenced,
    }
)
"""Errors after which the batch was judged but not stored."""

UNSTORED = SEQUENCE_ERRORS | {ErrorCode.corrupt_message, ErrorCode.message_too_large}
"""Errors after which this attempt has stored nothing."""

RETRIABLE = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.unstable_offset_commit,
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
    }
)
"""Errors after which any request may be retried."""

FAULTS = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
    }
)
"""Errors that any valid request may get while disks fail and coordinators load."""

CLUSTER_FAULTS = FAULTS | {
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
}
"""The same where several gateways serve: one of them may not know the newest topics, partitions and leaders
yet.
"""

MOVED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
    }
)
"""Errors after which a client asks for the leader of the partition."""

CLOCK_JUMPS = frozenset({ErrorCode.invalid_timestamp})
"""Errors that a batch may get when the gateway's clock has gone back by more than an hour."""

FENCED = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
"""Errors that tell a transactional producer that another producer has its id, or that its transaction timed
out.
"""
