"""The answers in which Seqgate deliberately differs from Apache Kafka, and why.

An entry covers the scenarios and field paths that match its patterns. `*` matches anything. A path is the
number of the exchange and the way to the field, joined by dots. Every entry must be needed: the difference
must occur in each scenario that the entry covers, or in its witnesses if the entry names any. A difference
that no longer occurs fails the test, so this list stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.compat.differential.compare import Difference


@dataclass(frozen=True)
class KnownDifference:
    """A known difference; `scenarios` and `path` are patterns.

    The difference must occur in every matching scenario, or in all `witnesses` if there are any. With
    `only_where` it covers only the pairs of values, Kafka's and Seqgate's, for which this returns True.
    """

    scenarios: tuple[str, ...]
    path: str
    reason: str
    witnesses: tuple[str, ...] = ()
    only_where: Callable[[object, object], bool] | None = None

    def speaks_for(self, scenario: str) -> bool:
        return any(fnmatchcase(_plain(scenario), _plain(pattern)) for pattern in self.scenarios)

    def must_occur_in(self, scenario: str) -> bool:
        return any(
            fnmatchcase(_plain(scenario), _plain(pattern)) for pattern in self.witnesses or self.scenarios
        )

    def covers(self, scenario: str, difference: Difference) -> bool:
        if not self.speaks_for(scenario) or not fnmatchcase(difference.path, self.path):
            return False
        return self.only_where is None or self.only_where(difference.kafka, difference.gateway)


def _plain(text: str) -> str:
    """Escape the square brackets of case names, which patterns would read as a set of characters."""
    return text.replace("[", "(").replace("]", ")")


def _kafka_is_behind(kafka: object, gateway: object) -> bool:
    return isinstance(kafka, int) and isinstance(gateway, int) and kafka < gateway


def _kafka_knows_nothing(kafka: object, gateway: object) -> bool:
    return kafka == -1 and isinstance(gateway, int) and gateway >= 0


NO_KEY = "Kafka fails with UNKNOWN_SERVER_ERROR; the empty key is the client's mistake"
ANSWERED = "Kafka never answers and leaves the client to its timeout; a clear error is better"
OFFSET_TWICE = (
    "Kafka looks at no offset delta of a batch that is not compressed; two records of one offset are refused"
)
ASSIGNS_AT_ONCE = "the assignment interval is 0 by default; Kafka's is a second"
DURABLE = "acks=all waits for the disk by default; Kafka leaves it to the page cache"
ELR = "Kafka sets min.insync.replicas for the whole cluster when eligible leader replicas are on; there are none here"
NOT_UNKNOWN = "Kafka answers UNKNOWN_SERVER_ERROR; an error that names the mistake is better"
READS_ON = "Kafka fails with UNKNOWN_SERVER_ERROR on a value that the protocol does not define; it is read as the nearest"
AS_IN_EFFECT = "a value is stored as it takes effect, without the spaces around it"
INNOCENT = "a producer that was fenced is refused at once; Kafka first aborts the transaction of the one that fenced it"
ONE_LEVEL = "a gateway runs each feature at one level; Kafka takes a downgrade that says it is one"
NO_FEATURES = "Kafka's other features are switches of a KRaft cluster; there is none to be switched"
SUCCESSORS = (
    "Kafka gives a fenced producer the epoch of its successor, so that both write as one; Seqgate refuses it"
)
ENDS = "Kafka refuses markers by max.message.bytes and never ends the transaction; here it ends whatever its topics take"
OWN_STATE = (
    "the gateway keeps its own state there; what clients send for it is refused for that, before all else"
)
NOTHING_REMAINS = "Kafka remembers the sequence of a batch that it refused and refuses those after it; here nothing of it remains"
OVERTAKES = "Kafka stores a later batch before the refused first one, which is then out of order for ever (KAFKA-15591)"
ONE_BY_ONE = "each batch is judged by itself: the right producer's is appended, the other's refused"
STARTS_AT_THE_LOG = (
    "the last stable offset is never below the log's start; Kafka tells that of the batch around it"
)
NAMED_ONCE = (
    "a protocol that a member names twice counts once; Kafka leaves it out, and fails where there is no other"
)
JOINS_TWICE = "Kafka refuses a static member that never got the answer to its join; under its own member id it can be nobody else"
NO_MEMBER_ID = "Kafka looks for a member without an id in v0; a request without one can't be meant"
STORED_LATER = (
    "Kafka stores with an acknowledgement where the partition stood before it, and tells what is stored; "
    "here the start offset is that of the first record that is not done"
)
STORED_AT_ALL = "Kafka stores nothing of a partition until something of it is acknowledged; here it is stored where the group began"
CUT_FOR_NOBODY = "the part of a batch that a limit leaves over is not sent: it could not be read"
NO_NEGATIVE = (
    "an offset below zero is taken as zero, and a group that is told to begin behind the end has no lag"
)
ALL_AT_ONCE = "Kafka gives out records that were delivered nearly as often as is allowed one after the other; here all at once"

NEAREST_NAME = "an unknown name is told the nearest that there is"
IN_CLEAR = "Kafka tells which of its Java classes failed; the same error in words for users"
ONE_DIRECTORY = "the data lies in exactly one directory, so log.dirs is no list"
LISTENERS_STAY = "listeners are opened at the start only"
LINEAR_TIME = "regular expressions are those of RE2, which match in linear time"
AS_CONFIGURED = (
    "Kafka never tells a client an interval above five minutes; here the client is told what is configured"
)
MAY_BE_SMALLER = (
    "INVALID_RECORD makes a client end its telemetry; TELEMETRY_TOO_LARGE says what was wrong, and it goes on"
)

TOO_LARGE_TO_READ = (
    "a batch that the topic compresses has the limit, too: Kafka stores the record, and then refuses to "
    "decompress it in compaction and look-ups"
)
ON_THE_EVENT_LOOP = (
    "Kafka takes a switch that it describes to nobody; there are no threads here to offload an assignor to"
)
ONE_TAG = "of two client tags with one key the last counts; Kafka fails"
CONFIGURED = "a topology is described with the partitions of its topics; Kafka describes it as it was sent until the topics change"

KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("dynamic_configs.every_configuration_of_a_topic",), "*.configs.flush.messages.synonyms.*", DURABLE
    ),
    KnownDifference(
        ("dynamic_configs.every_configuration_of_a_topic",), "*.configs.min.insync.replicas.synonyms.*", ELR
    ),
    KnownDifference(("dynamic_configs.topic_in_other_words",), "[34].said", NEAREST_NAME),
    KnownDifference(("dynamic_configs.broker_in_other_words",), "*.said", IN_CLEAR),
    KnownDifference(
        ("dynamic_configs.what_can_be_altered_on_a_broker",), "*.log.dirs.config_type", ONE_DIRECTORY
    ),
    KnownDifference(
        ("dynamic_configs.what_can_be_altered_on_a_broker",), "*.listeners.read_only", LISTENERS_STAY
    ),
    KnownDifference(
        ("dynamic_configs.what_can_be_altered_on_a_broker",),
        "*.listener.security.protocol.map.read_only",
        LISTENERS_STAY,
    ),
    KnownDifference(
        ("dynamic_configs.what_can_be_altered_on_a_broker",), "*.ssl.*.read_only", LISTENERS_STAY
    ),
    KnownDifference(
        ("dynamic_configs.what_can_be_altered_on_a_broker",), "*.sasl.*.read_only", LISTENERS_STAY
    ),
    KnownDifference(("client_metrics.values[java]",), "*.responses.*", LINEAR_TIME),
    KnownDifference(("client_metrics.longer_than_the_default",), "*.push_interval", AS_CONFIGURED),
    KnownDifference(("client_metrics.pushes[bomb]",), "2.error_code", MAY_BE_SMALLER),
    KnownDifference(("*",), "*.configs.flush.messages.value", DURABLE, ("topics.create[v7]",)),
    KnownDifference(("*",), "*.configs.min.insync.replicas.config_source", ELR, ("topics.create[v7]",)),
    KnownDifference(("frames.*",), "*.supported_features.*", NO_FEATURES, ("frames.api_versions[v3]",)),
    KnownDifference(("scram_users.set_no_password",), "*.error_*", NO_KEY),
    KnownDifference(("produce.null_records",), "1.*", ANSWERED),
    KnownDifference(("configs.altered_resource_twice",), "2.*", ANSWERED),
    KnownDifference(("compression.unreadable[*]",), "*.error_code", NOT_UNKNOWN),
    KnownDifference(("compression.values[compression.type]",), "*.value", AS_IN_EFFECT),
    KnownDifference(
        ("*",),
        "*.assignment.interval.ms.synonyms.*",
        ASSIGNS_AT_ONCE,
        ("group_configs.validate_only", "group_configs.list_resources[v1]"),
    ),
    KnownDifference(("produce.batch[codec ?]",), "1.*.error_code", NOT_UNKNOWN),
    KnownDifference(("produce.batch[offset deltas equal]",), "*", OFFSET_TWICE),
    KnownDifference(("produce.batch[* garbage]",), "1.*.error_code", NOT_UNKNOWN),
    KnownDifference(("produce.batch[lz4 with linked blocks]",), "1.*.error_code", NOT_UNKNOWN),
    KnownDifference(("configs.incremental_operation[unknown operation]",), "1.*", NOT_UNKNOWN),
    KnownDifference(("metadata.by_id_and_name[*]",), "4.*error_code", NOT_UNKNOWN),
    KnownDifference(("metadata.describe_topic_partitions_illegal_name[empty]",), "1.*", NOT_UNKNOWN),
    KnownDifference(("topics.create_with_config[spaces]",), "*.value", AS_IN_EFFECT),
    KnownDifference(("cluster_admin.downgrade_of_a_feature[*]",), "1.*", ONE_LEVEL),
    KnownDifference(("groups.pending_member_with_an_instance_id",), "2.*", NOT_UNKNOWN),
    KnownDifference(("groups.protocol_twice",), "1.*", NAMED_ONCE),
    KnownDifference(("group_connections.one_member_joins_over_two_connections",), "6.*", ANSWERED),
    KnownDifference(("consumer_groups.static_member_joins_twice",), "3.*", JOINS_TWICE),
    KnownDifference(("consumer_groups.join_without_a_member_id[v0]",), "3.error_code", NO_MEMBER_ID),
    KnownDifference(
        ("share_*",),
        "*.partitions.*.start_offset",
        STORED_LATER,
        ("share_fetch.holes", "share_acknowledge.life[v2]"),
        _kafka_is_behind,
    ),
    KnownDifference(
        ("share_*",),
        "*.partitions.*.lag",
        STORED_AT_ALL,
        ("share_fetch.two_groups_of_one_topic", "share_offsets.delete_of_a_group_with_members"),
        _kafka_knows_nothing,
    ),
    KnownDifference(("share_fetch.deleted_records",), "6.*.lag", STORED_LATER),
    KnownDifference(("share_fetch.asked_by[no group id]",), "1.*", NOT_UNKNOWN),
    KnownDifference(("share_fetch.asked_by[another group]",), "1.*", NOT_UNKNOWN),
    KnownDifference(("share_fetch.group_of_another_kind",), "3.*", NOT_UNKNOWN),
    KnownDifference(("share_fetch.topic_that_is_deleted",), "?.*", NOT_UNKNOWN),
    KnownDifference(("compression.largest_record[recompressed]",), "*", TOO_LARGE_TO_READ),
    KnownDifference(("group_configs.offload",), "*", ON_THE_EVENT_LOOP),
    KnownDifference(("share_fetch.unknown_acquire_mode[*]",), "1.*", READS_ON),
    KnownDifference(
        ("share_fetch.batch_size[0]", "share_fetch.batch_size[-1]"), "*.acquired_records*", READS_ON
    ),
    KnownDifference(("share_fetch.max_bytes[120]",), "*.bytes of a cut batch", CUT_FOR_NOBODY),
    KnownDifference(("share_fetch.max_bytes[-1]",), "*", READS_ON),
    KnownDifference(("share_fetch.released_records_come_again",), "1[23].*", ALL_AT_ONCE),
    KnownDifference(("share_offsets.describe_what_is_not_there[*]",), "[34].*", NOT_UNKNOWN),
    KnownDifference(("share_offsets.alter_what_is_not_there",), "3.*", NOT_UNKNOWN),
    KnownDifference(
        ("share_offsets.alter_to[-2]", "share_offsets.alter_to[behind the end]"), "[57].*", NO_NEGATIVE
    ),
    KnownDifference(("streams_groups.join_with[tags twice]",), "*", ONE_TAG),
    KnownDifference(
        (
            "streams_topologies.topology_with[epoch -1]",
            "streams_topologies.topology_with[subtopology twice]",
            "streams_topologies.topology_with[* copartition index]",
            "streams_topologies.topology_with[copartition index]",
        ),
        "1.error_code",
        NOT_UNKNOWN,
    ),
    KnownDifference(
        ("streams_topologies.changelog_that_exists[as many]",),
        "3.*.state_changelog_topics.0.partitions",
        CONFIGURED,
    ),
    KnownDifference(("transactions.a_zombie_begins_over_an_open_transaction",), "4.error_code", INNOCENT),
    KnownDifference(("transaction_parts.no_transactions[*]",), "1.*", ANSWERED),
    KnownDifference(("transaction_begin.old_epoch_claims_with_an_open_transaction",), "6.*", INNOCENT),
    KnownDifference(("transaction_admin.transaction_versions_of_markers[-1]",), "*", READS_ON),
    KnownDifference(("transaction_ends.topic_that_takes_no_batches",), "[46].*", ENDS),
    KnownDifference(("transaction_ends.ended_by_one_whose_successor_keeps_epochs[*]",), "6.*", SUCCESSORS),
    KnownDifference(("transaction_admin.markers_without_an_epoch[*]",), "*.error_code", NOT_UNKNOWN),
    KnownDifference(("transaction_admin.markers_of_internal_topics",), "2.*.error_code", OWN_STATE),
    KnownDifference(("transaction_produce.internal_topics[*]",), "*", OWN_STATE),
    KnownDifference(
        ("transaction_produce.sequence_after_a_batch_that_was_not_added[*]",), "*", NOTHING_REMAINS
    ),
    KnownDifference(
        (
            "sequence.behind_a_refused_first_batch[too large]",
            "sequence.behind_a_refused_first_batch[a wrong checksum]",
        ),
        "*",
        OVERTAKES,
    ),
    KnownDifference(("transaction_produce.two_producers_in_one_request[*]",), "*", ONE_BY_ONE),
    KnownDifference(
        ("transaction_produce.records_are_deleted_below_an_open_transaction[inside a batch]",),
        "*.last_stable_offset",
        STARTS_AT_THE_LOG,
    ),
)
