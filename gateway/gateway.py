"""The composition root: puts the parts together, starts and stops them; only this module knows them all."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.admin.restart.live import Passed, Restarts, address_of, console_address, control_address
from seqgate.gateway.admin.server import ControlServer, Traffic
from seqgate.gateway.backends.backend import StartFailed, backend_of, opening, preparing
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.load import exposure_complaint, is_exposed
from seqgate.gateway.config.metrics import METRICS_LISTENER, OTLP_ENDPOINT
from seqgate.gateway.config.packages import missing_package
from seqgate.gateway.handlers import APIS
from seqgate.gateway.process import open_files_limit
from seqgate.gateway.runtime.composition import compose, start_coordinators, stop_coordinators
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.producer_clients import ClientsFile
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.brokers import EVERY_INTERFACE, Endpoint, advertised_endpoint
from seqgate.gateway.runtime.topics.follow_settings import follow_limits, limit_names
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.runtime.topics.topic_lifecycle import topic_policy
from seqgate.gateway.runtime.upkeep.background_jobs import BackgroundJobs
from seqgate.gateway.server.dispatcher import Dispatcher, Requests, RequestTimes
from seqgate.gateway.server.sasl import Logins, login_mechanisms
from seqgate.gateway.server.server import Server
from seqgate.gateway.workers.worker_brokers import WorkerStart
from seqgate.log import IncompatibleFormat, LogDirectory, LogError
from seqgate.seq_validator import ProducerLimit

if TYPE_CHECKING:
    from seqgate.gateway.metrics.listener import Metrics
    from seqgate.gateway.runtime.loop.audit import Requester
    from seqgate.gateway.security.acls.access import Operation

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0
STORE_TIMEOUT_S = 30.0
"""How long a stop waits for a bucket; then it gives up what is neither confirmed nor acknowledged."""


class Gateway:
    """One node: a data directory, its partitions, and the listeners that serve them."""

    def __init__(
        self,
        config: Config,
        machine: Machine | None = None,
        *,
        worker_start: WorkerStart | None = None,
        before: Callable[[Dispatcher], Requests] = lambda dispatcher: dispatcher,
        restarts: Restarts | None = None,
    ) -> None:
        """Take the settings. Only a worker has `worker_start`; `before` puts a part before the dispatcher,
        which sees every request first. A process of its own has `restarts`.
        """
        self._restarts = restarts
        self._before = before
        self.config = config
        self.machine = machine or Machine()
        self.clock = self.machine.clock
        self.backend = backend_of(config, self.machine, worker_start)
        self._worker_start = worker_start
        self.durability = self.backend.durability
        self.has_entered = False
        """Whether the backend is prepared; until then a start may be cancelled."""
        self.producer_limit = ProducerLimit()
        self.server: Server
        self._services: Services | None = None
        self._flusher: LogFlusher
        self._log_directory: LogDirectory
        self._jobs: BackgroundJobs
        self._clients: ClientsFile
        self._control: ControlServer
        self._metrics: Metrics | None = None
        self.metrics_address = ""
        """HOST:PORT of the metrics listener; empty without one."""

    @property
    def services(self) -> Services:
        """Return the parts that all others share; they exist once the metadata is read."""
        assert self._services is not None
        return self._services

    async def start(self) -> None:
        """Recover the data, then listen. Raises StartFailed, with all parts stopped and the lock free."""
        config = self.config
        complaint = exposure_complaint(config) or missing_package(config)
        if complaint is not None:
            raise StartFailed(complaint)
        await self.backend.enter()
        self.has_entered = True
        self._flusher = self.backend.flusher(asyncio.get_running_loop(), self.durability)
        handles_limit = open_files_limit()
        follow_limits(config, self._flusher, self.machine.storage, handles_limit, self.producer_limit)
        try:
            self._log_directory = self._open_directory()
        except StartFailed:
            await self.backend.leave(is_clean=False)
            raise
        environment = self._log_directory.environment
        environment.delayed_limit.change(
            config.int("seqgate.delayed.records.max.per.partition"), config.int("seqgate.delayed.records.max")
        )
        limit_names(config, environment.name_budget)
        self._flusher.start()
        try:
            await self._put_together(handles_limit)
            await self._begin()
        except StartFailed:
            await self.stop()
            raise

    async def _put_together(self, handles_limit: int) -> None:
        """Create all parts from the replayed metadata. The parts do nothing until they are started."""
        loop = asyncio.get_running_loop()
        config, flusher, log_directory = self.config, self._flusher, self._log_directory
        metadata_log = await self._open_metadata()
        shows_metrics = any(
            config.optional_str(name) is not None for name in (METRICS_LISTENER, OTLP_ENDPOINT)
        )
        services = await compose(
            config,
            self.machine,
            log_directory,
            flusher,
            metadata_log,
            self.backend.surroundings(),
            shows_metrics=shows_metrics,
            questions=self._answer_question,
        )
        dispatcher = Dispatcher(APIS, services)
        self.server = Server(
            loop,
            config,
            self._before(dispatcher),
            services.partitions.cold_reads,
            quotas=services.node.quotas,
            logins=Logins(loop, self.clock, partial(login_mechanisms, services), services.node.audit),
            handles_limit=handles_limit,
            memory=services.node.memory,
            tls_listeners=services.node.tls_listeners,
        )
        flusher.after_round.append(self.server.outbox.flush)
        self._clients = ClientsFile(
            services.partitions.counters.clients,
            services.partitions.counters.verdicts,
            config,
            self.clock,
            self.machine.storage,
            log_directory.files,
            services.node.node_id,
            self.server.producer_ids,
        )
        self._clients.load()
        self._jobs = BackgroundJobs(
            config,
            self.clock,
            services.partitions.registry,
            log_directory,
            services.topics.lifecycle,
            services.security.tokens,
            services.partitions.cold_reads,
            services.telemetry,
            self._clients,
        )
        self._control = ControlServer(
            services,
            Path(config.str("log.dirs")) if self._worker_start is None else self._worker_start.share.files,
            traffic=self._traffic,
            seconds=self.machine.boot_seconds,
            metrics=self._metrics_text,
            restarts=self._restarts,
        )
        if shows_metrics:
            self._metrics = self._make_metrics(services, dispatcher.time_requests())
        self._services = services

    async def _answer_question(
        self, question: str, may: Callable[[Operation], bool], requester: Requester
    ) -> bytes:
        from seqgate.gateway.admin.operations import answer_question  # noqa: PLC0415 - as the first command

        return await answer_question(self._control.gateway, question, may, requester)

    async def _metrics_text(self) -> str:
        """Return the metrics. Without metrics of its own, the gateway begins with the first question to read
        what it counts anyway; it times nothing.
        """
        if self._metrics is None:
            # the import takes a tenth of a second, and requests must not wait for it
            await asyncio.to_thread(import_module, "seqgate.gateway.metrics.listener")
        if self._metrics is None:
            self._metrics = self._make_metrics(self.services, None)
        return await self._metrics.text()

    def _traffic(self) -> Traffic:
        return Traffic(len(self.server), *self.server.counts, self.backend.calls, self.backend.cache)

    def _make_metrics(self, services: Services, requests: RequestTimes | None) -> Metrics:
        # a gateway without metrics starts without these modules
        from seqgate.gateway.metrics.listener import compose_metrics  # noqa: PLC0415

        return compose_metrics(
            self.config,
            services,
            self.server,
            requests,
            self._jobs.retention,
            services.upkeep.compaction,
            lambda: self._control.gateway,
        )

    async def _begin(self) -> None:
        """Start serving; the listeners start last. Raises StartFailed."""
        services = self.services
        self._start_coordinators()
        # Claiming a block writes to the metadata log, so all of its records must have been read before.
        if not await services.coordinators.producer_ids.start():
            logger.warning("no producer ids yet: %s", services.coordinators.producer_ids.state().last_error)
        services.partitions.cold_reads.start()
        services.upkeep.backlog.start()
        services.upkeep.disk_room.start()
        # Measure the disk before the first request, so that a full disk takes no batch.
        await services.upkeep.backlog.measure_all_safely()
        for listener in self.config.listeners:
            await self._listen(listener)
        self._jobs.start()
        services.upkeep.backlog.run()
        services.topics.metadata_log.add_listener(services.upkeep.compaction.metadata_changed)
        services.upkeep.compaction.start()
        if services.upkeep.backups is not None:
            services.upkeep.backups.start()
        await self.backend.begin(services)
        if self.backend.uploads is not None:
            services.upkeep.compaction.when_compacted.append(self.backend.uploads.rewritten)
        if self._restarts is not None:
            self._restarts.note_serving()
        await self._control.start(self._inherited(self._control.path))
        if self._metrics is not None:
            await self._start_metrics(self._metrics)

    def _inherited(self, listener: Listener | Path) -> list[socket.socket]:
        return [] if self._restarts is None else self._restarts.take(listener)

    def pass_on(self, restart: str, console: str | None = None, browsers: Sequence[int] = ()) -> Passed:
        """Return what the next process gets of this one. Call before `stop`, which leaves it open then.
        `console` is the address of the console beside the gateway, `browsers` its listening socket.
        """
        sockets = {
            address_of(listener): self.server.duplicates(listener.name) for listener in self.config.listeners
        }
        if self._metrics is not None and self._metrics.listener is not None:
            sockets[address_of(self._metrics.listener.address)] = self._metrics.listener.duplicates()
        sockets[control_address(self._control.path)] = self._control.duplicates()
        if console is not None:
            sockets[console_address(console)] = list(browsers)
        locks = self.machine.storage.keep_locks()
        return Passed(
            restart=restart, paused_at_s=time.monotonic(), console=console, sockets=sockets, locks=locks
        )

    def _start_coordinators(self) -> None:
        services = self.services
        try:
            start_coordinators(services.coordinators, services.topics)
        except IncompatibleFormat as error:
            raise StartFailed(
                f"the data directory {services.partitions.log_directory.path} can't be used: {error}"
            ) from error

    async def _open_metadata(self) -> MetadataLog:
        try:
            return await self.backend.open_metadata(self._log_directory, self._flusher)
        except (LogError, IncompatibleFormat, OSError, ValueError) as error:
            raise StartFailed(
                f"the metadata in {self.config.str('log.dirs')} can't be read: {in_words(error)}"
            ) from error

    def _open_directory(self) -> LogDirectory:
        path = Path(self.config.str("log.dirs"))
        with opening(path):
            return LogDirectory.open(
                path,
                self.machine.storage,
                node_id=self.config.int("node.id")
                if self._worker_start is None
                else self._worker_start.first_id,
                now_ms=self.clock.now_ms,
                config=topic_policy(self.config, {}).log_config,
                producer_limit=self.producer_limit,
                durability=self.durability,
                share=None if self._worker_start is None else self._worker_start.share,
            )

    async def _listen(self, listener: Listener) -> None:
        try:
            with preparing(listener.name):
                port = await self.server.listen(listener, self._inherited(listener))
        except OSError as error:
            # asyncio repeats the address in the text of an error of bind
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or error
            raise StartFailed(f"can't listen on {listener.host}:{listener.port}: {reason}") from error
        self.services.node.brokers.advertised[listener.name] = advertised_endpoint(
            self.config, listener, port
        )
        self.services.node.bound[listener.name] = Endpoint(listener.host or EVERY_INTERFACE[1], port)
        if is_exposed(self.config, listener):
            logger.warning(
                "listening on %s:%d without authentication: any client can read and write everything",
                listener.host or "every interface",
                port,
            )

    async def _start_metrics(self, metrics: Metrics) -> None:
        if metrics.listener is not None:
            listener = metrics.listener.address
            try:
                port = await metrics.listener.start(self._inherited(listener))
            except OSError as error:
                raise StartFailed(
                    f"can't listen for metrics on {listener.host}:{listener.port}: {in_words(error)}"
                ) from error
            self.metrics_address = Endpoint(listener.host or EVERY_INTERFACE[1], port).shown
            logger.info("metrics and health on http://%s", self.metrics_address)
        if metrics.exporter is not None:
            metrics.exporter.start()

    async def stop(self) -> None:
        """Answer what is in flight, make all durable, mark a clean stop. A failed start leaves the mark."""
        await self.backend.prepare_stop()
        giving_up = self.limit_waiting()
        if self._services is not None:
            await self._stop_services(self._services)
        await self.backend.rest()
        await self._flusher.idle()
        giving_up.cancel()
        self._flusher.stop()
        # A log may have gone offline with records that are not durable, or with bytes in its files that it
        # does not count.
        is_durable = all(
            not log.offline and log.recovery_point == log.log_end_offset for log in self._log_directory.logs()
        )
        await self.backend.resign(is_clean=is_durable)
        if self._services is not None:
            # The others lead at once what this gateway has given up, if they hear of it.
            await self._services.node.news.settled()
            await self._services.node.peers.close()
        self._log_directory.close(clean=True)
        await self.backend.leave(is_clean=is_durable)

    async def drop_clients(self) -> None:
        """Close all listeners and connections at once, without the answers that are due."""
        self.server.abort_all()
        await self._control.stop()
        if self._metrics is not None:
            await self._metrics.stop()

    async def abandon(self) -> None:
        """End as a killed process does, as far as its files tell: write nothing more, and mark no clean stop.
        For tests. The caller then cancels all tasks of the event loop.
        """
        await self.drop_clients()
        services = self.services
        services.upkeep.disk_room.stop()
        services.partitions.cold_reads.stop()
        services.partitions.batch_threads.stop()
        self._flusher.stop()
        self._log_directory.close(clean=False)
        await self.backend.leave(is_clean=False)

    def limit_waiting(self) -> asyncio.TimerHandle:
        """Give up what waits for a bucket after STORE_TIMEOUT_S; return the timer. Call after `enter`."""
        return asyncio.get_running_loop().call_later(
            STORE_TIMEOUT_S, self._flusher.give_up, f"the store did not answer for {STORE_TIMEOUT_S:.0f} s"
        )

    async def _stop_services(self, services: Services) -> None:
        if self._metrics is not None:
            await self._metrics.stop()
        await self._control.stop()
        await self.server.stop_accepting()
        services.upkeep.disk_room.stop()
        await services.upkeep.backlog.stop()
        await services.upkeep.compaction.stop()
        stop_coordinators(services.coordinators)
        for partition in services.partitions.registry:
            partition.close()
        await self.server.finish(STOP_TIMEOUT_S)
        services.partitions.cold_reads.stop()
        services.partitions.batch_threads.stop()
        services.telemetry.stop()
        await self._jobs.stop()
        await self._clients.close()
        await services.node.tasks.stop()
        services.node.audit.close()
        await services.coordinators.producer_ids.close()
        await services.topics.metadata_log.close()
        await services.partitions.recoveries.finish()
        for partition in services.partitions.registry:
            if not partition.log.offline and partition.log.recovery_point < partition.log.log_end_offset:
                partition.start_flush()
