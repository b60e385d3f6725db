"""Each of several workers shows its metrics on a port of its own."""

from __future__ import annotations

from pathlib import Path

from tests.support.metrics_text import Values
from tests.support.wire import Wire
from tests.system.commands.conftest import seqgate
from tests.system.metrics.scene import LISTENER, create, page, produce, scraped
from tests.system.workers.scene import consecutive_ports, workers

COUNT = 2


def test_each_worker_has_the_next_port(tmp_path: Path) -> None:
    port, metrics = consecutive_ports(COUNT), consecutive_ports(COUNT)
    settings = {LISTENER: f"127.0.0.1:{metrics}"}
    with workers(tmp_path / "data", COUNT, port, settings) as gateway:
        with Wire(gateway.bootstrap) as wire:
            create(wire, "lines", 4)
        led = [scraped(metrics + number).of("seqgate_led_partitions") for number in range(COUNT)]
        assert all(led)
        for number in range(COUNT):
            with Wire(f"127.0.0.1:{port + number}") as wire:
                produce(wire, "lines")
        found = [scraped(metrics + number) for number in range(COUNT)]
        assert sum(_records(values) for values in found) == 1, "one worker leads partition 0"
        for values in found:
            assert values.of("seqgate_requests_total", api="Produce") == 1
        infos = {labels for values in found for (name, labels) in values if name == "seqgate_node_info"}
        assert len(infos) == COUNT, "each tells its own node id"
        for number in range(COUNT):
            assert page(metrics + number, "/readyz") == (200, "ready\n")
        for reach in (["--data-dir", tmp_path / "data"], ["--bootstrap", gateway.bootstrap]):
            shown = seqgate("metrics", "seqgate_led_partitions", *reach).stdout.splitlines()
            assert shown[2:] == [
                f'seqgate_led_partitions{{node_id="{number + 1}"}} {value}'
                for number, value in enumerate(led)
            ]


def _records(values: Values) -> float:
    return values.by("seqgate_topic_records_total", "topic").get("lines", 0)
