"""Sends the metrics at each interval, and says in the log when exports begin to fail and when they work again."""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from gateway.admin.status.live import gateway_version
from gateway.config import Config
from gateway.config.otlp import OTLP_ENDPOINT, OTLP_HEADERS, OTLP_INTERVAL_MS, parse_headers
from gateway.metrics.exposition import SUBJECTS, process_families
from gateway.metrics.metric import Sources
from gateway.metrics.otlp.collector import Collector, ExportFailed
from gateway.metrics.otlp.encoding import Moment, encoded_families, encoded_request, encoded_samples
from gateway.runtime.loop.slices import in_slices

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 2.0
"""Time for the export of a gateway that stops; then it stops without."""


class OtlpExporter:
    """Exports of one gateway to one collector, one after the other.

    The values count since the start of the gateway. So the next export tells what a failed one would have told, and nothing is sent twice.
    """

    def __init__(self, config: Config, sources: Sources) -> None:
        url = config.str(OTLP_ENDPOINT)
        headers = config.optional_str(OTLP_HEADERS)
        self._collector = Collector(url, {} if headers is None else parse_headers(headers))
        self._shown = urlsplit(url)._replace(query="", fragment="").geturl()
        """The URL without its query, which may have a key."""
        self._interval_s = config.int(OTLP_INTERVAL_MS) / 1000
        self._sources = sources
        node = sources.services.node
        self._attributes = {
            "service.name": "seqgate",
            "service.instance.id": str(node.node_id),
            "service.version": gateway_version(),
            "seqgate.cluster.id": node.cluster_id,
        }
        self._failure: str | None = None
        """The kind of the failure that the log told last; None while exports work."""
        self._resumes_s = 0.0
        """The time of the event loop until which the collector wants no export."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to export, at once and then at each interval."""
        self._sources.loop_delay.start()
        logger.info("sending metrics to %s every %g s", self._shown, self._interval_s)
        self._task = asyncio.create_task(self._repeat(), name="otlp")

    async def stop(self) -> None:
        """Export the last values, as far as the collector takes them in time, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._sources.loop_delay.stop()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._export()
            except TimeoutError:
                logger.warning("the collector %s did not take the last metrics in time", self._shown)
        await self._collector.close()

    async def _repeat(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self._export()
            due_s = max(due_s + self._interval_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def _export(self) -> None:
        """Send the present values. Failures are logged, and not raised."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._resumes_s:
            return
        try:
            await self._collector.send(await self._encoded())
        except ExportFailed as failure:
            self._resumes_s = loop.time() + failure.pause_s
            if failure.kind != self._failure:
                logger.warning("the collector %s takes no metrics: %s", self._shown, failure)
            self._failure = failure.kind
        except Exception as error:
            # a mistake of the gateway must neither end the exports nor fill the log
            if repr(error) != self._failure:
                logger.exception("the metrics for the collector %s can't be read", self._shown)
            self._failure = repr(error)
        else:
            if self._failure is not None:
                logger.info("the collector %s takes metrics again", self._shown)
            self._failure = None

    async def _encoded(self) -> bytes:
        """Return the present values as a request. The event loop reads the values in slices, and a thread encodes them."""
        now_ms, started_at_ms = (
            self._sources.services.node.clock.now_ms(),
            self._sources.gateway.started_at_ms,
        )
        moment = Moment(now_ms * 1_000_000, started_at_ms * 1_000_000)
        metrics: list[otlp.Metric] = []
        for subject in SUBJECTS:
            samples = [
                sample async for sample in in_slices(subject.read(self._sources)) if sample is not None
            ]
            metrics += await asyncio.to_thread(encoded_samples, samples, moment)
        return await asyncio.to_thread(_with_process, self._attributes, metrics, moment)


def _with_process(attributes: dict[str, str], metrics: list[otlp.Metric], moment: Moment) -> bytes:
    return encoded_request(attributes, [*metrics, *encoded_families(process_families(), moment)])
