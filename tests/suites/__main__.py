"""Run the test suites of client libraries against one gateway and against three, and compare the outcomes.

    python -m tests.suites                                        # all of them
    python -m tests.suites --suites kafka-go --gateways 3
    python -m tests.suites --suites franz-go --only 'TestTxn.*'   # some tests of it, in the words of its runner

The sources come from GitHub into .cache/suites; sources that are there are used as they are. Go, Node and
their registries are needed for the suites in these languages. One gateway has a local directory, three share
a bucket (a directory, or versitygw with `--store s3`), spread partitions at once and write up to 200 objects
a second. All have an authorizer that allows everything, because some suites ask for ACLs.

Prints a table of the outcomes, and each test that passes against one gateway only. Exits with 1 if there is
one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.suites.library import COPIES, FIRST, KAFKA, LIBRARIES, PORTS, REPORT, SEEDS, Library
from tests.suites.outcomes import Outcomes, summary, worse
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.kafka_tools import TOOL_CLASSES, java_command
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw
from tests.support.setup_peers import kafka_libs
from tests.support.wire import Wire

SOURCES = REPOSITORY / ".cache" / "suites"
JOIN_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


IN_A_CLUSTER = {"seqgate.cluster.balance.delay.ms": "100", "seqgate.cluster.puts.per.second": "200"}
"""Tests that send thousands of single records, each when the one before is acknowledged, have limits of a
minute.
"""


@contextmanager
def gateways(root: Path, ports: Sequence[int], store: str, library: Library) -> Iterator[None]:
    """Run a gateway on each port."""
    count = len(ports)
    settings, environment = {**SETTINGS, **library.settings}, dict[str, str]()
    with ExitStack() as opened:
        if count > 1 and store == "s3":
            versitygw = opened.enter_context(Versitygw())
            settings |= {
                "seqgate.cluster": f"s3://{BUCKET}/suites",
                "seqgate.cluster.endpoint": versitygw.endpoint,
            }
            settings |= {"seqgate.cluster.region": REGION}
            environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        elif count > 1:
            (root / "bucket").mkdir()
            settings |= {"seqgate.cluster": f"file://{root / 'bucket'}"}
        if count > 1:
            settings |= IN_A_CLUSTER
        running = [
            GatewayProcess(
                root / f"data-{port}",
                settings={
                    **settings,
                    "advertised.listeners": f"PLAINTEXT://localhost:{port}",
                    "node.id": str(number),
                },
                environment=environment,
                port=port,
            )
            for number, port in enumerate(ports, library.first_node_id)
        ]
        try:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(GatewayProcess.start, running))
            _await_all(running)
            yield
        finally:
            for gateway in running:
                gateway.kill()


def _await_all(running: Sequence[GatewayProcess]) -> None:
    deadline_s = time.monotonic() + JOIN_S
    for gateway in running:
        with Wire(gateway.bootstrap) as wire:
            while len(wire.call("metadata", 9, topics=[]).fields["brokers"]) < len(running):
                assert time.monotonic() < deadline_s, "the gateways do not find each other"
                time.sleep(0.1)


def prepared(library: Library) -> Path:
    """Return the folder of the library's source, which is fetched if it is not there."""
    place = SOURCES / library.name
    if not place.exists():
        SOURCES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", library.repository, str(place)], check=True)
        subprocess.run(["git", "-C", str(place), "checkout", "--quiet", library.revision], check=True)
        if library.prepare:
            subprocess.run(library.prepare, cwd=place, check=True)
    return place / library.directory


def distribution(folder: Path) -> Path:
    """Write a folder that has Apache Kafka's jars and the scripts of its tools; return it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "libs").symlink_to(kafka_libs())
    for name, class_name in TOOL_CLASSES.items():
        script = folder / "bin" / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(java_command(class_name))} "$@"\n')
        script.chmod(0o755)
    return folder


def run(
    library: Library, ports: Sequence[int], store: str, only: str | None, logs: Path, limit_s: float
) -> Outcomes:
    """Run the suite of a library against gateways on these ports; keep its output and theirs in `logs`."""
    place, count = prepared(library), len(ports)
    with tempfile.TemporaryDirectory(prefix="seqgate-suite-") as name:
        root = Path(name)
        report = root / "report"
        words = {REPORT: str(report), SEEDS: ",".join(f"127.0.0.1:{port}" for port in ports)}
        words[FIRST] = f"kafka://127.0.0.1:{ports[0]}"
        words |= {COPIES: str(count), KAFKA: str(distribution(root / "kafka"))}
        command = [words.get(word, word) for word in library.command]
        environment = {key: words.get(value, value) for key, value in library.environment.items()}
        if only is not None and command[0] == "sh":
            environment["TESTS"] = only
        elif only is not None:
            command += ["-run" if command[0] == "go" else "-k" if "pytest" in command else "-t", only]
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{library.name}-{count}.log"
        with gateways(root, ports, store, library), log.open("wb") as output:
            runner = subprocess.Popen(
                command,
                cwd=place,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                runner.wait(limit_s)
            except subprocess.TimeoutExpired:
                print(f"{library.name}: ended after {limit_s:.0f} s", file=sys.stderr)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(runner.pid, signal.SIGKILL)
                runner.wait()
        for port in ports:
            kept = root / f"data-{port}.stderr"
            (logs / f"{library.name}-{count}-{port}.stderr").write_bytes(kept.read_bytes())
        return library.read(log.read_text(errors="replace"), report)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("--suites", nargs="+", choices=sorted(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--gateways", nargs="+", type=int, choices=(1, 2, 3), default=[1, 3])
    parser.add_argument("--store", choices=("file", "s3"), default="file", help="what several gateways share")
    parser.add_argument(
        "--ports",
        nargs=3,
        type=int,
        default=PORTS,
        help="some suites have the default ports in their code (9092 9095 9098)",
    )
    parser.add_argument("--only", help="run these tests only, in the words of the suite's runner")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "seqgate-suites")
    parser.add_argument("--minutes", type=float, default=20, help="ends a suite that takes longer (20)")
    arguments = parser.parse_args(given)
    lines, found_worse = [], list[str]()
    for name in arguments.suites:
        library = LIBRARIES[name]
        outcomes = {}
        for count in arguments.gateways:
            outcomes[count] = run(
                library,
                arguments.ports[:count],
                arguments.store,
                arguments.only,
                arguments.logs,
                60 * arguments.minutes,
            )
            print(f"{name}, {count} gateways: {summary(outcomes[count])}", file=sys.stderr, flush=True)
        lines.append(f"| {name} {library.revision} | " + " | ".join(map(summary, outcomes.values())) + " |")
        if len(outcomes) > 1:
            one, *several = outcomes.values()
            found_worse += [f"{name}: {test}" for each in several for test in worse(one, each)]
    print("| suite | " + " | ".join(f"gateways: {count}" for count in arguments.gateways) + " |")
    print("| --- |" + " --- |" * len(arguments.gateways))
    print("\n".join([*lines, *(f"only against one gateway: {test}" for test in found_worse)]))
    return 1 if found_worse else 0


if __name__ == "__main__":
    sys.exit(main())
