"""Kafka's settings of a broker that the gateway does not have.

AlterConfigs keeps the settings that Kafka can alter, without effect, and DescribeConfigs describes them, so
that tools can read, compare and set them. AlterConfigs refuses the settings that Kafka reads at its start
only, as in Kafka. Source: Apache Kafka 4.4.0, its KafkaConfig.configDef, DynamicConfig.Broker and
DynamicBrokerConfig (ALL_DYNAMIC_CONFIGS, PER_BROKER_CONFIGS).

To add a newer Kafka's setting, write a row here, or the name into `READ_ONLY`. Only requests that
alter or describe a broker import this module, so the table costs a start nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seqgate.gateway.config.setting import LONG_MAX, Setting, SettingType, SettingValue

_BOOLEAN, _STRING = SettingType.BOOLEAN, SettingType.STRING
_LIST, _CLASS = SettingType.LIST, SettingType.CLASS
_SHORT, _INT, _LONG, _DOUBLE = SettingType.SHORT, SettingType.INT, SettingType.LONG, SettingType.DOUBLE


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
_PRINCIPALS: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_CLASSES: Final = {
    "metric.reporters": (_JMX,),
    "principal.builder.class": (_PRINCIPALS,),
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
}
"""Kafka's own Java classes, by their settings. Kafka, too, refuses a class that its process lacks."""
KEPT_SECTION: Final = "Settings of Kafka brokers that are kept without effect"


def _kept(reason: str, *rows: tuple[str, SettingType, SettingValue | None, int | None]) -> Iterator[Setting]:
    """Yield settings without effect. A row is name, type, default (None for no value) and least value (None
    for any).
    """
    for name, kind, default, least in rows:
        yield Setting(
            name=name,
            type=kind,
            default=default,
            minimum=least,
            choices=_CLASSES.get(name, ()),
            dynamic=True,
            empty_items=True,
            without_effect=True,
            section=KEPT_SECTION,
            doc=f"Kept without effect: {reason}.",
        )


_OF_ALL_BROKERS: Final = (
    *_kept(
        "the gateway has no pools of threads",
        ("background.threads", _INT, 10, 1),
        ("num.io.threads", _INT, 8, 1),
        ("num.network.threads", _INT, 3, 1),
        ("num.recovery.threads.per.data.dir", _INT, 2, 1),
    ),
    *_kept(
        "brokers copy no partitions from each other",
        ("follower.replication.throttled.rate", _LONG, None, 0),
        ("leader.replication.throttled.rate", _LONG, None, 0),
        ("num.replica.fetchers", _INT, 1, 1),
        ("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, None, 0),
    ),
    *_kept(
        "coordinators write each batch of records at once",
        ("group.coordinator.cached.buffer.max.bytes", _INT, 1048588, 524288),
        ("share.coordinator.cached.buffer.max.bytes", _INT, 1048588, 524288),
    ),
    *_kept(
        "there is no tiered storage",
        ("follower.fetch.last.tiered.offset.enable", _BOOLEAN, False, None),
        ("remote.fetch.max.wait.ms", _INT, 500, 1),
        ("remote.list.offsets.request.timeout.ms", _LONG, 30000, 1),
        ("remote.log.index.file.cache.total.size.bytes", _LONG, 1073741824, 1),
        ("remote.log.manager.copier.thread.pool.size", _INT, 10, 1),
        ("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX, 1),
        ("remote.log.manager.expiration.thread.pool.size", _INT, 10, 1),
        ("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX, 1),
        ("remote.log.manager.follower.thread.pool.size", _INT, 2, 1),
        ("remote.log.reader.threads", _INT, 10, 1),
    ),
    *_kept(
        "the gateway loads no Java classes",
        ("config.providers", _LIST, (), None),
        ("metric.reporters", _LIST, (_JMX,), None),
    ),
)
_OF_ONE_BROKER: Final = (
    *_kept(
        "the gateway loads no Java classes",
        ("principal.builder.class", _CLASS, _PRINCIPALS, None),
        ("ssl.engine.factory.class", _CLASS, None, None),
    ),
    *_kept(
        "the data lies in one directory, which takes every new partition",
        ("cordoned.log.dirs", _LIST, (), None),
    ),
    *_kept(
        "Kerberos (GSSAPI) is not supported",
        ("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", None),
        ("sasl.kerberos.min.time.before.relogin", _LONG, 60000, None),
        ("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), None),
        ("sasl.kerberos.service.name", _STRING, None, None),
        ("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, None),
        ("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, None),
    ),
    *_kept(
        "the gateway's own logins need no renewal",
        ("sasl.login.refresh.buffer.seconds", _SHORT, 300, None),
        ("sasl.login.refresh.min.period.seconds", _SHORT, 60, None),
        ("sasl.login.refresh.window.factor", _DOUBLE, 0.8, None),
        ("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, None),
    ),
    *_kept(
        "TLS is OpenSSL's and not Java's",
        ("ssl.keymanager.algorithm", _STRING, "SunX509", None),
        ("ssl.protocol", _STRING, "TLSv1.3", None),
        ("ssl.provider", _STRING, None, None),
        ("ssl.secure.random.implementation", _STRING, None, None),
        ("ssl.trustmanager.algorithm", _STRING, "PKIX", None),
    ),
)
KEPT_SETTINGS: Final = tuple(sorted((*_OF_ALL_BROKERS, *_OF_ONE_BROKER), key=lambda setting: setting.name))
BY_KEPT_NAME: Final[dict[str, Setting]] = {setting.name: setting for setting in KEPT_SETTINGS}
OF_ONE_BROKER: Final = frozenset(setting.name for setting in _OF_ONE_BROKER)
"""The settings that can't be altered for all brokers at once."""
THREAD_COUNTS: Final = _names(
    """
    background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers remote.log.manager.copier.thread.pool.size
    remote.log.manager.expiration.thread.pool.size
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    """
)
"""The settings that one alteration at most doubles or halves (Kafka's DynamicThreadPool)."""
MAX_KEPT_NAMES: Final = 1_000
"""Names without effect of one broker, and of all brokers; further ones are refused with POLICY_VIOLATION."""
MAX_KEPT_BYTES: Final = 1 << 20
"""Bytes of these names and values; more are refused with POLICY_VIOLATION, and descriptions stay small."""
CORDONED: Final = "cordoned.log.dirs"
READ_ONLY_LISTS: Final = _names(
    """
    controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters
    early.start.listeners group.consumer.assignors group.coordinator.rebalance.protocols
    group.share.assignors kafka.metrics.reporters log.dir process.roles
    """
)
"""The lists that Kafka reads at its start only, without those of `seqgate.gateway.config.table`."""
READ_ONLY: Final = READ_ONLY_LISTS | _names(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds auto.leader.rebalance.enable
    broker.heartbeat.interval.ms broker.id broker.session.timeout.ms client.quota.callback.class
    controlled.shutdown.enable controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms controller.quorum.append.linger.ms
    controller.quorum.auto.join.enable controller.quorum.election.backoff.max.ms
    controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.socket.timeout.ms
    create.topic.policy.class.name delete.records.purgatory.purge.interval.requests
    fetch.purgatory.purge.interval.requests group.consumer.regex.refresh.interval.ms
    group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.threads
    group.share.initialize.retry.interval.ms group.share.persister.class.name
    group.streams.topology.description.plugin.class
    initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
    kafka.metrics.polling.interval.secs leader.imbalance.check.interval.seconds
    log.dir.failure.timeout.ms log.flush.scheduler.interval.ms
    log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
    max.request.partition.size.limit metadata.log.dir metadata.log.max.record.bytes.between.snapshots
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.replica.alter.log.dirs.threads offsets.commit.timeout.ms offsets.load.buffer.size
    offsets.topic.compression.codec offsets.topic.replication.factor
    producer.purgatory.purge.interval.requests queued.max.requests remote.log.index.file.cache.ttl.ms
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
    remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
    remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
    remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
    remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
    remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
    remote.log.storage.system.enable replica.fetch.backoff.ms replica.fetch.max.bytes
    replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms sasl.client.callback.handler.class
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.controller.protocol sasl.oauthbearer.allow.unverified.audience
    sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class security.inter.broker.protocol
    security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.state.log.load.buffer.size
    transaction.state.log.min.isr transaction.state.log.replication.factor
    transaction.two.phase.commit.enable unclean.leader.election.interval.ms unstable.api.versions.enable
    unstable.feature.versions.enable
    """
)
"""Kafka's settings that Kafka reads at its start only, without those of `seqgate.gateway.config.table`."""
