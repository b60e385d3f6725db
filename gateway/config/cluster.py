"""Settings of a gateway whose data is durable in a bucket, of several workers of one command, and of the
connections between gateways. Source of the latter: Kafka's ReplicationConfigs and BrokerSecurityConfigs.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from seqgate.gateway.config.setting import LONG_MAX, Section, SettingValue, complaint_of

# The address of a cluster: the bucket, or the directory, that holds its objects.

FORMS: Final = "s3://BUCKET/PREFIX or file:///DIRECTORY"
LONGEST_PREFIX: Final = 400
"""Characters of a prefix: S3 allows 1024 bytes with the key, and a key of Seqgate has at most 512."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")
_OTHER_SCHEMES: Final = {
    "s3a": "write s3:// instead of s3a://",
    "s3n": "write s3:// instead of s3n://",
    "gs": "Google Cloud Storage is not supported yet",
    "gcs": "Google Cloud Storage is not supported yet",
    "az": "Azure Blob Storage is not supported yet",
    "abfs": "Azure Blob Storage is not supported yet",
    "abfss": "Azure Blob Storage is not supported yet",
    "http": "write s3://BUCKET/PREFIX here, and the URL of the store in seqgate.cluster.endpoint",
    "https": "write s3://BUCKET/PREFIX here, and the URL of the store in seqgate.cluster.endpoint",
}


class BucketAddress(NamedTuple):
    """A prefix in an S3 bucket; an empty prefix is the whole bucket."""

    bucket: str
    prefix: str


class DirectoryAddress(NamedTuple):
    """The absolute path of a directory."""

    path: str


def parse_address(text: str) -> BucketAddress | DirectoryAddress:
    """Return the place that an address names. Raises ValueError with the reason and what to write."""
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not separator:
        hint = f"; write file://{text}" if text.startswith("/") else ""
        raise ValueError(f"an address has the form {FORMS}{hint}")
    if scheme in _OTHER_SCHEMES:
        raise ValueError(_OTHER_SCHEMES[scheme])
    if scheme == "s3":
        return _bucket(rest)
    if scheme == "file":
        return _directory(rest)
    raise ValueError(f"an address has the form {FORMS}, and {scheme}:// is neither")


def _bucket(rest: str) -> BucketAddress:
    if "@" in rest:
        raise ValueError(
            "credentials do not belong in the address; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"the bucket {bucket!r} must have 3 to 63 letters, digits, dots and hyphens, as in "
            "s3://my-bucket/my-prefix"
        )
    prefix = prefix.rstrip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ValueError(
            f"the prefix {prefix!r} must consist of names between single slashes; a name has letters, digits "
            "and -_.=, and begins with no dot"
        )
    if len(prefix) > LONGEST_PREFIX:
        raise ValueError(f"the prefix must have at most {LONGEST_PREFIX} characters, not {len(prefix)}")
    return BucketAddress(bucket, prefix)


def _directory(rest: str) -> DirectoryAddress:
    if not rest.startswith("/"):
        raise ValueError(
            f"a directory is named by its whole path after three slashes, such as file:///{rest.lstrip('./')}"
        )
    names = [name for name in unquote(rest).split("/") if name]
    if ".." in names or any("\0" in name for name in names):
        raise ValueError("the path of the directory must not contain `..`; write the path that it stands for")
    if not names:
        raise ValueError("name a directory below the root, such as file:///mnt/seqgate")
    return DirectoryAddress("/" + "/".join(names))


address_complaint = complaint_of(parse_address)


def endpoint_complaint(value: SettingValue) -> str | None:
    """Return why a value is no URL of an S3 store, or None."""
    form = "it must have the form http://HOST:PORT or https://HOST:PORT"
    try:
        parts = urlsplit(str(value))
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return form
    if not is_sound or parts.query or parts.fragment:
        return form
    if parts.username is not None:
        return "credentials do not belong in the URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return None


LISTENER: Final = "inter.broker.listener.name"
MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms with which a gateway can log in to another: those that take a user name and a password."""


def _name_check_complaint(value: SettingValue) -> str | None:
    return None if value in ("https", "") else "choose https, or an empty value to check no names"


_WORKERS = Section("Several workers")
_CLUSTER = Section("Durability in a bucket")
_BETWEEN_GATEWAYS = Section("Connections between gateways")

MOST_WORKERS: Final = 64
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SPREADING_SELECTOR: Final = "seqgate.SpreadingReplicaSelector"

CLUSTER_SETTINGS = (
    _WORKERS.number("seqgate.workers", 1, minimum=1, maximum=MOST_WORKERS)(
        "Processes that serve the data directory, or the bucket of `seqgate.cluster`, each on a core of its "
        "own. Worker 1 has `node.id` and the ports of `listeners` and `advertised.listeners`; each further "
        "worker has the next node id, and on each listener the next port. Clients see a cluster of as many "
        "brokers. With a bucket each has a cache of its own in the data directory. The flag is `--workers`."
    ),
    _WORKERS.number("seqgate.workers.timeout.ms", 15_000, minimum=1_000, maximum=3_600_000)(
        "Milliseconds without a sign of life after which a worker is killed and started again. Until then "
        "nobody serves its partitions: a worker that is only stopped still has them open."
    ),
    _CLUSTER.text("seqgate.cluster", None, check=address_complaint)(
        "The address of the cluster: `s3://BUCKET/PREFIX`, or `file:///DIRECTORY` for a directory that "
        "exists. Records are acknowledged when they are durable there, and the directory in `log.dirs` is a "
        "cache. The credentials for a bucket come from the variables AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or from the role of the machine. Unset, records are "
        "durable in `log.dirs`. The flag is `--cluster`."
    ),
    _CLUSTER.text("seqgate.cluster.endpoint", None, check=endpoint_complaint)(
        "The URL of a store that speaks S3, such as `http://127.0.0.1:7070`. Unset, the value of "
        "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, otherwise Amazon S3. The store must carry out conditional "
        "writes (If-None-Match, If-Match); the gateway checks it at the start."
    ),
    _CLUSTER.text("seqgate.cluster.region", None)(
        "The region of the bucket. Unset, the value of AWS_REGION or AWS_DEFAULT_REGION, otherwise us-east-1."
    ),
    _CLUSTER.text("seqgate.cluster.ca.file", None)(
        "A file with certificates (PEM) of authorities that the gateway trusts, beside those of the system, "
        "when the endpoint has an https URL: the private authority that signed the store's certificate. "
        "Unset, the value of AWS_CA_BUNDLE."
    ),
    _CLUSTER.number("seqgate.cluster.request.timeout.ms", 30_000, minimum=1_000, maximum=600_000)(
        "Milliseconds after which a request to the store has failed without an answer, and is made again. "
        "An object of `seqgate.cluster.put.max.bytes` must be written within them, and "
        "`seqgate.cluster.puts.in.flight` objects are written at once: raise the limit where the way to the "
        "store is slow."
    ),
    _CLUSTER.number("seqgate.cluster.puts.per.second", 10, maximum=1000)(
        "Objects per second that the gateway writes at most while records arrive; each has the records of "
        "all partitions since the one before. More make acknowledgements quicker and cost more, because a "
        "store charges for each object. Objects of `seqgate.cluster.put.max.bytes` do not count: they are "
        "written at once."
    ),
    _CLUSTER.number("seqgate.cluster.puts.in.flight", 4, maximum=64)(
        "Objects that the gateway writes at once. Records are acknowledged in the order of the objects."
    ),
    _CLUSTER.number("seqgate.cluster.put.max.bytes", 8 << 20, minimum=64 << 10, maximum=1 << 30)(
        "Bytes of records after which the gateway writes an object without waiting for more. A larger batch "
        "has an object of its own."
    ),
    _CLUSTER.long("seqgate.cluster.unwritten.max.bytes", 64 << 20, minimum=1 << 20, maximum=LONG_MAX)(
        "Bytes of records in this gateway that are not durable in the bucket yet. Beyond the limit, while "
        "the store is slow or away, the gateway refuses batches of producers with NOT_ENOUGH_REPLICAS, and "
        "producers retry."
    ),
    _CLUSTER.number("seqgate.cluster.lease.ms", 6000, minimum=300, maximum=86_400_000)(
        "Milliseconds for which a gateway answers readers as the leader after it sent the last object that "
        "the bucket confirmed. A gateway that writes nothing for a tenth longer is taken over."
    ),
    _CLUSTER.whole("seqgate.cluster.heartbeat.ms", None, minimum=100, maximum=3_600_000)(
        "Milliseconds after which an idle gateway writes an empty object. The write keeps the gateway's "
        "lease, and fails if another gateway has ended its session; then the gateway stops. Unset, a third "
        "of `seqgate.cluster.lease.ms`."
    ),
    _CLUSTER.switch("seqgate.cluster.balance.enable", True)(
        "Whether this gateway hands over partitions that it leads when another gateway has joined, until "
        "all lead as many. Moves that an administrator orders are carried out anyway."
    ),
    _CLUSTER.number("seqgate.cluster.balance.delay.ms", 5000, minimum=0, maximum=3_600_000)(
        "Milliseconds after the last gateway joined or ended until partitions are handed over, so that "
        "several gateways that start together cause no moves twice."
    ),
    _CLUSTER.number("seqgate.cluster.moves.at.once", 8, maximum=1000)(
        "Partitions that this gateway hands over at the same time. Each is without a leader until its last "
        "records are in the bucket."
    ),
    _CLUSTER.number("seqgate.cluster.metadata.poll.ms", 500, minimum=10, maximum=60_000)(
        "Milliseconds between two looks whether another gateway has changed the metadata of the cluster: "
        "topics, configurations, users, access control. A change by this gateway itself, and the answer to "
        "a request that would change something, wait for no look. Other gateways tell this one of their "
        "changes, so a look finds something only where that failed."
    ),
    _CLUSTER.number("seqgate.cluster.metadata.snapshot.changes", 1_000, minimum=2, maximum=1_000_000)(
        "Objects of the metadata log after which the live gateway with the lowest node id writes a snapshot "
        "of the metadata. A start on an empty disk reads the newest snapshot, and at most about as many "
        "objects. A snapshot is as large as the metadata, so many partitions want a larger number."
    ),
    _CLUSTER.number("seqgate.cluster.metadata.snapshot.age.ms", 3_600_000, minimum=1_000)(
        "Milliseconds after which the objects of the metadata log that the last two snapshots stand for are "
        "deleted. A gateway that stood still for longer finds that it has missed changes, and stops."
    ),
    _CLUSTER.number("seqgate.cluster.upload.interval.ms", 600_000, minimum=100, maximum=86_400_000)(
        "Milliseconds after which the gateway uploads new records of all partitions as parts of their "
        "segments, and deletes the objects of the write-ahead log that have the same records. A start "
        "without the cache reads the parts and what came after them."
    ),
    _CLUSTER.long("seqgate.cluster.wal.max.bytes", 256 << 20, minimum=1 << 20, maximum=LONG_MAX)(
        "Bytes that the write-ahead log has got since the last upload at which the gateway uploads parts at "
        "once."
    ),
    _CLUSTER.number("seqgate.cluster.orphan.age.ms", 86_400_000, minimum=1_000)(
        "Milliseconds after which a part that no manifest names is deleted: a crash left it amid an upload. "
        "The gateway searches for such parts as often. It must be longer than an upload takes, and longer "
        "than the clocks of gateway and store differ."
    ),
    _CLUSTER.long("seqgate.cluster.cache.bytes", -1, minimum=-1, maximum=LONG_MAX, dynamic=True)(
        "Bytes of segments that the gateway keeps in `log.dirs`. Beyond the limit it evicts the blocks of "
        "uploaded segments that were not read for the longest time; a read fetches them from the bucket "
        "again. What is not uploaded yet, indexes and internal topics stay. With -1 there is no limit but "
        "the disk: blocks are evicted while less than twice `seqgate.log.min.free.bytes` is free."
    ),
    _CLUSTER.text(
        "replica.selector.class", None, choices=(LEADER_SELECTOR, RACK_SELECTOR, SPREADING_SELECTOR)
    )(
        "Which gateway consumers read uploaded records from (KIP-392). Unset, or with Kafka's "
        "`LeaderSelector`, the leader of the partition. With Kafka's `RackAwareReplicaSelector`, a live "
        "replica whose `broker.rack` is the consumer's `client.rack`, if there is one. With "
        "`seqgate.SpreadingReplicaSelector`, one live replica after the other, of the consumer's rack where "
        "it names one that has any. Set it the same at all gateways. It changes nothing without "
        "`seqgate.cluster`."
    ),
    _CLUSTER.long("seqgate.cluster.reading.cache.bytes", 64 << 20, minimum=16 << 20, maximum=LONG_MAX)(
        "Bytes of memory for records of partitions that another gateway leads, where "
        "`replica.selector.class` sends consumers here. Beyond the limit the blocks of 1 MiB that were not "
        "read for the longest time are dropped, and fetched from the bucket again when needed."
    ),
    _BETWEEN_GATEWAYS.text(LISTENER, None)(
        "The listener at which the gateways of a cluster reach each other; unset, the first of `listeners`. "
        "All gateways must have a listener of this name. With TLS, a gateway connects with its key store, "
        "trust store and versions of this listener; its principal at the others needs the right "
        "CLUSTER_ACTION on the cluster, and DESCRIBE and READ on all topics and groups, as one of "
        "`super.users` has."
    ),
    _BETWEEN_GATEWAYS.text(MECHANISM, None, choices=MECHANISMS)(
        "The mechanism with which a gateway logs in to the others, where their listener has SASL. The user "
        "is in the JAAS line of the listener and mechanism: `listener.name.NAME.MECHANISM.sasl.jaas.config` "
        "with the options `username` and `password`."
    ),
    _BETWEEN_GATEWAYS.text(NAME_CHECK, "https", check=_name_check_complaint, per_listener=True)(
        "Whether a gateway compares the certificate of another gateway with the host name in its address: "
        "`https` compares; empty does not."
    ),
)
