"""The image as it runs: from the Dockerfile alone, as the services of compose.yaml, and as the pods of the
manifests.

Ports in the files are replaced by free ones, so that nothing else on this machine is in the way; all else is
as the files say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.container import Container, Image, build_image, running
from tests.support.gateway_process import REPOSITORY, free_port
from tests.support.manifests import Pod, composed, kustomized
from tests.support.prometheus import Prometheus

MOST_ADDED_BYTES = 120_000_000
LIMIT_S = 60.0
RECORDS = 100
OPEN = {"SEQGATE_ALLOW_INSECURE_LISTENERS": "true"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image that the Dockerfile describes."""
    return build_image(REPOSITORY, tmp_path_factory.mktemp("image"))


def produce(bootstrap: str, topic: str) -> None:
    """Send records with librdkafka's idempotent producer, and wait until all are acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(LIMIT_S) == 0
    assert failures == [None] * RECORDS


def consume(bootstrap: str, topic: str) -> list[int]:
    """Read as many records as `produce` sends, in a group of their own."""
    reader = {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**reader, "log_level": 0})
    consumer.subscribe([topic])
    values: list[int] = []
    while len(values) < RECORDS:
        records = consumer.consume(RECORDS - len(values), LIMIT_S)
        assert records, f"only {len(values)} records came"
        assert [record.error() for record in records if record.error()] == []
        values += [int(record.value()) for record in records]
    consumer.close()
    return values


def ask(url: str) -> tuple[int, str]:
    """Return the status and the text of an answer over HTTP."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


def moved(found: Any, ports: Mapping[int, int]) -> Any:
    """Return a part of a file with other ports."""
    text = re.sub(
        r"(?<=[: ])\d{4,5}\b", lambda port: str(ports.get(int(port[0]), port[0])), json.dumps(found)
    )
    return json.loads(text)


class TestImage:
    def test_it_adds_less_than_its_limit(self, image: Image) -> None:
        assert image.added_bytes < MOST_ADDED_BYTES

    def test_it_has_the_bytecode_of_what_it_runs(self, image: Image) -> None:
        sources = [path for path in image.added.rglob("*.py") if "site-packages/seqgate" in str(path)]
        assert len(sources) > 300
        made = [path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc" for path in sources]
        assert [path for path in made if not path.is_file()] == []

    def test_without_a_word_about_clients_it_refuses_and_says_what_to_do(
        self, image: Image, tmp_path: Path
    ) -> None:
        with Container(image, tmp_path / "data") as container:
            assert container.await_end() == 1
        assert "seqgate.allow.insecure.listeners=true" in container.log

    def test_records_outlive_the_container(self, image: Image, tmp_path: Path) -> None:
        port, metrics = free_port(), free_port()
        variables = OPEN | {
            "SEQGATE_LISTENERS": f"PLAINTEXT://0.0.0.0:{port}",
            "SEQGATE_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
            "SEQGATE_METRICS_LISTENER": f"0.0.0.0:{metrics}",
        }
        for number in range(2):
            with Container(image, tmp_path / "data", environment=variables) as container:
                container.await_healthy()
                if number == 0:
                    produce(f"127.0.0.1:{port}", "kept")
                    assert consume(f"127.0.0.1:{port}", "kept") == list(range(RECORDS))
                    status = container.execute("seqgate", "status", "--json")
                    assert status.returncode == 0, status.stdout + status.stderr
                    assert container.execute("touch", "/opt/seqgate/x", "/etc/x", "/x").returncode == 1
                else:
                    lines = container.execute(
                        "seqgate", "consume", "kept", "--bootstrap", f"127.0.0.1:{port}"
                    ).stdout
                    assert lines.split() == [str(value) for value in range(RECORDS)]
                assert container.stop() == 0, container.log
                assert container.execute(*image.stage.health_check).returncode != 0


def test_compose_runs_a_gateway_with_its_console_and_prometheus(image: Image, tmp_path: Path) -> None:
    ports = {port: free_port() for port in (9092, 19092, 9644, 8080)}
    services = moved(composed()["services"], ports)
    hosts = dict.fromkeys(services, "127.0.0.1")
    metrics = {"SEQGATE_METRICS_LISTENER": f"0.0.0.0:{ports[9644]}"}
    gateway = Container(
        image,
        tmp_path / "gateway",
        services["gateway"]["command"],
        services["gateway"]["environment"] | metrics,
        hosts,
    )
    console = Container(image, tmp_path / "console", services["console"]["command"], hosts=hosts)
    config = (REPOSITORY / "deploy" / "compose" / "prometheus.yml").read_text()
    config = config.replace("gateway:9644", f"127.0.0.1:{ports[9644]}").replace(
        "alerts.yml", str(REPOSITORY / "deploy" / "prometheus" / "alerts.yml")
    )
    with gateway, Prometheus(tmp_path / "prometheus", config.replace("15s", "1s")) as prometheus:
        gateway.await_healthy()
        produce(f"127.0.0.1:{ports[9092]}", "orders")
        assert consume(f"127.0.0.1:{ports[9092]}", "orders") == list(range(RECORDS))
        with console:
            console.await_healthy(services["console"]["healthcheck"]["test"][1:])
            status, page = ask(f"http://127.0.0.1:{ports[8080]}/topics")
            assert status == 200
            assert "orders" in page
            assert prometheus.await_that(lambda: prometheus.query('seqgate_ready{job="seqgate"} == 1'))
            assert prometheus.get("rules")["groups"]
            assert console.stop() == 0, console.log
        assert gateway.stop() == 0, gateway.log


def pods(
    image: Image, folder: str, count: int, tmp_path: Path, further: Mapping[str, str]
) -> list[Container]:
    """Return the containers of the pods that a folder of manifests describes, each with ports of its own."""
    objects = kustomized(folder)
    found = [Pod(objects, number) for number in range(count)]
    hosts = {pod.host: "127.0.0.1" for pod in found}
    containers = []
    for pod in found:
        ports = {9092: free_port(), 9644: free_port()}
        variables = moved(pod.environment, ports) | further
        files = pod.files(tmp_path / f"{pod.name}-files")
        words = pod.container["args"]
        containers.append(Container(image, tmp_path / pod.name, words, variables, hosts, files))
    return containers


def address(container: Container) -> str:
    """Return where the clients of a pod connect."""
    return container.environment["SEQGATE_ADVERTISED_LISTENERS"].partition("://")[2]


def probes(container: Container, pod: Pod) -> dict[str, int]:
    """Ask what the probes of a pod ask, and return the status of each answer."""
    base = f"http://127.0.0.1:{container.environment['SEQGATE_METRICS_LISTENER'].rpartition(':')[2]}"
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    return {name: ask(base + pod.container[name]["httpGet"]["path"])[0] for name in names}


def test_kubernetes_runs_one_gateway(image: Image, tmp_path: Path) -> None:
    (container,) = pods(image, "gateway", 1, tmp_path, {})
    pod = Pod(kustomized("gateway"), 0)
    with container:
        container.await_healthy()
        assert probes(container, pod) == {"startupProbe": 200, "livenessProbe": 200, "readinessProbe": 200}
        (tmp_path / pod.name / "lines").write_text("hello\n")
        words = ("seqgate", "produce", "greetings", "--create", "--bootstrap", address(container))
        made = container.execute(*words, "--file", "lines")
        assert made.returncode == 0, made.stdout + made.stderr
        read = container.execute("seqgate", "consume", "greetings", "--bootstrap", address(container))
        assert read.stdout == "hello\n"
        assert container.stop(pod.spec["terminationGracePeriodSeconds"]) == 0, container.log
    assert (tmp_path / pod.name / "data" / "meta.properties").is_file()


def test_kubernetes_runs_gateways_that_share_a_bucket(image: Image, tmp_path: Path) -> None:
    """The directory of a bucket stands in for S3, and lies where each pod sees it."""
    bucket = tmp_path / "bucket"
    containers = pods(image, "cluster", 3, tmp_path, {"SEQGATE_CLUSTER": "file:///var/lib/bucket"})
    for container in containers:
        container.shared = {"/var/lib/bucket": bucket}
    first = containers[0]
    with running(*containers):
        for container in containers:
            container.await_healthy()
        listed = first.execute("seqgate", "cluster", "gateways", "--bootstrap", address(first), "--json")
        assert listed.returncode == 0, listed.stdout + listed.stderr
        assert [each for each in containers if address(each) not in listed.stdout] == []
        made = first.execute(
            "seqgate", "topics", "create", "orders", "--partitions", "6", "--bootstrap", address(first)
        )
        assert made.returncode == 0, made.stdout + made.stderr
        (first.data / "lines").write_text("".join(f"{number}:x\n" for number in range(RECORDS)))
        words = (
            "seqgate",
            "produce",
            "orders",
            "--key-separator",
            ":",
            "--bootstrap",
            address(containers[1]),
        )
        made = first.execute(*words, "--file", "lines")
        assert made.returncode == 0, made.stdout + made.stderr
        assert containers[2].stop() == 0, containers[2].log
        words = ("seqgate", "consume", "orders", "--show", "key", "--bootstrap", address(first))
        read = first.execute(*words)
        assert sorted(map(int, read.stdout.split())) == list(range(RECORDS)), read.stderr
        assert [container.stop() for container in containers[:2]] == [0, 0]
