"""The client libraries whose own suites run here, and what each suite needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.suites.outcomes import Read, of_go, of_jest, of_librdkafka, of_pytest

PORTS: Final = (9092, 9095, 9098)
"""The ports of the gateways: several suites have the address localhost:9092 in their code, and KafkaJS all
three.
"""
REPORT: Final = "{report}"
"""Stands in a command for the file into which the runner writes its report."""
SEEDS: Final = "{seeds}"
FIRST: Final = "{first}"
COPIES: Final = "{copies}"
KAFKA: Final = "{kafka}"
"""Stand in an environment for the addresses of the gateways, the first of them as a URI, their number, and
a folder with the jars and the tools of Apache Kafka.
"""


@dataclass(frozen=True)
class Library:
    """A client library: where its source is, what prepares it, and how its suite runs. Paths are relative to
    the source.
    """

    name: str
    repository: str
    revision: str
    command: Sequence[str]
    read: Read
    directory: str = "."
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that the gateways need for the suite."""
    first_node_id: int = 1


_PYTEST: Final = (
    sys.executable,
    "-m",
    "pytest",
    "-v",
    "--tb=native",
    "-o",
    "addopts=",
    "-p",
    "no:cacheprovider",
    "--junit-xml",
    REPORT,
)

LIBRARIES: Final = {
    library.name: library
    for library in (
        Library(
            "kafka-python",
            "https://github.com/dpkp/kafka-python",
            "a3b3836f",
            (
                *_PYTEST,
                "test/integration/test_admin_integration.py",
                "test/integration/test_consumer_integration.py",
                "test/integration/test_producer_integration.py",
            ),
            of_pytest,
            environment={
                "KAFKA_VERSION": "4.4.0",
                "KAFKA_URI": FIRST,
                "KAFKA_ROOT": KAFKA,
                "PYTHONPATH": ".",
            },
            settings={"num.partitions": "4", "group.min.session.timeout.ms": "1000"},
            first_node_id=0,
        ),
        Library(
            "kafka-go",
            "https://github.com/segmentio/kafka-go",
            "v0.4.50",
            # The tests that are left out end all others by a nil pointer of their own, whatever the broker
            # is.
            (
                *("go", "test", "-v", "-count=1", "-timeout=15m"),
                *(
                    "-skip",
                    "TestReaderConsumerGroup/(consumer_group_commits_on_close|verify_offset_committed)",
                    ".",
                ),
            ),
            of_go,
            # Go refuses the line `go 1.23` of its go.mod.
            prepare=("go", "mod", "edit", "-go=1.23.0"),
            environment={"KAFKA_VERSION": "3.7.0"},
        ),
        Library(
            "franz-go",
            "https://github.com/twmb/franz-go",
            "adb3a18a",
            ("go", "test", "-v", "-count=1", "-timeout=15m", "."),
            of_go,
            directory="pkg/kgo",
            environment={"KGO_SEEDS": SEEDS, "KGO_TEST_RF": COPIES, "KGO_TEST_RECORDS": "20000"},
        ),
        Library(
            "librdkafka",
            "https://github.com/confluentinc/librdkafka",
            "v2.15.0",
            # Without its tests that need no broker, and in the quick mode of its own.
            ("sh", "-c", 'echo "bootstrap.servers=$SEEDS" > test.conf && exec ./test-runner -L -K -Q -p3'),
            of_librdkafka,
            directory="tests",
            prepare=(
                "sh",
                "-c",
                "./configure --disable-gssapi --disable-curl && make libs && make -C tests build",
            ),
            environment={
                "SEEDS": SEEDS,
                "BROKERS": SEEDS,
                "KAFKA_PATH": KAFKA,
                "TEST_KAFKA_VERSION": "4.4.0",
                "LD_LIBRARY_PATH": "../src:../src-cpp",
            },
            # Its tests forbid things to everybody, and no entry binds a super user.
            settings={"num.partitions": "4", "super.users": "User:nobody"},
        ),
        Library(
            "KafkaJS",
            "https://github.com/tulios/kafkajs",
            "v2.2.4",
            (
                *("npx", "jest", "--forceExit", "--runInBand", "--json", "--outputFile", REPORT),
                *("--testPathPattern", "src/(admin|producer|consumer|broker|cluster)/"),
            ),
            of_jest,
            prepare=("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"),
            environment={"KAFKA_VERSION": "2.4", "NODE_ENV": "test"},
            first_node_id=0,
        ),
    )
}
