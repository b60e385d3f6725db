"""A gateway's membership in its cluster: it registers, takes over others, moves partitions, and resigns."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.silence import Watched, Watcher
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import CLUSTER_VERSION
from seqgate.gateway.config import Config
from seqgate.gateway.config.listeners import SecurityProtocol
from seqgate.gateway.config.load import missing_login
from seqgate.gateway.metadata.membership import ANY_EPOCH, end_session, register_broker
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.partition_moves import HandOvers, PartitionMoves
from seqgate.log import StorageFailed

logger = logging.getLogger(__name__)

BEATS_PER_LEASE: Final = 3
RESIGN_TIMEOUT_S: Final = 10.0
"""How long a stop waits until the metadata shows it. Then another gateway takes over as after a crash."""
_FENCED: Final = 1
_PROTOCOLS: Final = list(SecurityProtocol)
"""The security protocols, each at the number that Kafka gives it."""


def heartbeat_s(config: Config) -> float:
    """Return after how long an idle gateway writes an object. Raises StartFailed if its lease ends before."""
    lease_ms, beat_ms = config.int("seqgate.cluster.lease.ms"), config["seqgate.cluster.heartbeat.ms"]
    if not isinstance(beat_ms, int):
        return lease_ms / 1000 / BEATS_PER_LEASE
    if 2 * beat_ms > lease_ms:
        raise StartFailed(
            f"seqgate.cluster.heartbeat.ms must be at most half of seqgate.cluster.lease.ms ({lease_ms}), "
            f"not {beat_ms}"
        )
    return beat_ms / 1000


class ClusterMembership:
    """The membership of one session. `lost` is called with a sentence when another gateway has ended it."""

    def __init__(
        self,
        config: Config,
        machine: Machine,
        objects: ObjectStore,
        wal: SessionWal,
        services: Services,
        hand_overs: HandOvers,
        lost: Callable[[str], None],
    ) -> None:
        self._config = config
        self._wal = wal
        self._services = services
        self._lost = lost
        self._metadata_log = services.topics.metadata_log
        self._node_id = wal.session.node_id
        self._session = wal.session.session
        self._is_member = False
        self._missing_login = missing_login(config)
        self._watcher = Watcher(objects, self._node_id, machine.boot_seconds, self._end_session)
        self._moves = PartitionMoves(
            config,
            self._metadata_log,
            services.node.brokers,
            services.partitions.registry,
            services.partitions.flusher,
            hand_overs,
            machine.seconds,
        )

    async def join(self, *, replaces: int = ANY_EPOCH) -> None:
        """Register the gateway under its addresses, and begin to watch others and to move partitions. Raises
        StartFailed. `replaces` is the epoch of the registration whose node id the gateway has chosen; by
        default the node id is its own.
        """
        if self._missing_login and self._others():
            raise StartFailed(
                "the gateway can't join the cluster, because it could not ask the other gateways: "
                f"{self._missing_login}"
            )
        broker = self._registration()
        try:
            refused = await self._metadata_log.commit(
                lambda image: register_broker(image, broker, replaces=replaces)
            )
        except StorageFailed as error:
            raise StartFailed(f"the gateway can't join the cluster: {error}") from error
        if refused is not None:
            raise StartFailed(f"the gateway can't join the cluster: {refused.message}")
        self._is_member = True
        self._metadata_log.add_listener(self._changed)
        await self._changed(())
        self._moves.start()

    def _registration(self) -> RegisterBrokerRecord:
        endpoints = tuple(
            BrokerEndpoint(
                name, endpoint.host, endpoint.port, _PROTOCOLS.index(self._config.protocol_of(name))
            )
            for name, endpoint in self._services.node.brokers.advertised.items()
        )
        return RegisterBrokerRecord(
            self._node_id,
            uuid.UUID(bytes=self._wal.session.nonce),
            self._session,
            endpoints,
            rack=self._config.optional_str("broker.rack"),
            cluster_version=CLUSTER_VERSION,
            lease_ms=self._config.int("seqgate.cluster.lease.ms"),
        )

    async def _changed(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                logger.info(
                    "node %d has joined the cluster, in session %d", record.broker_id, record.broker_epoch
                )
                if self._missing_login and record.broker_id != self._node_id:
                    logger.error("This gateway can't ask node %d: %s", record.broker_id, self._missing_login)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == _FENCED:
                logger.info("session %d of node %d has ended", record.broker_epoch, record.broker_id)
        brokers = self._metadata_log.image.brokers
        if not self._is_member:
            return
        if not brokers.is_current(self._node_id, self._session):
            self._is_member = False
            self._lost(
                f"The metadata of the cluster shows the end of session {self._session} of node "
                f"{self._node_id}."
            )
            return
        live = {node_id: brokers.by_id[node_id] for node_id in brokers.live(self._node_id)}
        self._watcher.follow(
            {
                node_id: Watched(node_id, broker.broker_epoch, broker.lease_ms / 1000)
                for node_id, broker in live.items()
            }
        )

    async def _end_session(self, node_id: int, session: int) -> bool:
        return await self._metadata_log.commit(lambda image: end_session(image, node_id, session))

    @property
    def has_others(self) -> bool:
        """Whether this gateway is a member, and another one could take over from it."""
        return self._is_member and bool(self._others())

    def _others(self) -> set[int]:
        return {*self._metadata_log.image.brokers.live(self._node_id)} - {self._node_id}

    async def rest(self) -> None:
        """Watch and move nothing more; the gateway is about to stop."""
        await self._moves.stop()
        await self._watcher.stop()

    async def resign(self) -> None:
        """Give the partitions of this gateway to others, after its session is sealed."""
        if not self._is_member:
            return
        self._is_member = False
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                await self._end_session(self._node_id, self._session)
        except Exception as error:  # noqa: BLE001 - the gateway stops in any case, and others take it over
            logger.warning(
                "the end of the session can't be written, so another gateway takes over as after a crash: %s",
                str(error) or "the store does not answer",
            )
