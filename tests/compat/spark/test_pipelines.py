from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import SparkCompatError, source
from seqgate.spark_kafka_compat.checkpoint_topics import IDS_FILE, CheckpointTopics
from seqgate.spark_kafka_compat.landing import land, landing_frame
from seqgate.spark_kafka_compat.pipelines import audit
from seqgate.spark_kafka_compat.pipelines import land as land_program
from seqgate.spark_kafka_compat.pipelines.streaming import NOT_BEGUN, topics_read
from seqgate.spark_kafka_compat.sequence_audit import audit_producers, audit_records
from seqgate.spark_kafka_compat.session import JARS_VARIABLE, EndpointError, PositionError
from tests.compat.spark.topics import Topics
from tests.support.batches import Batch, records
from tests.support.gateway_process import SOURCES, free_port
from tests.support.setup_peers import spark_connector_libs
from tests.support.wire import Wire
from tests.tiers import in_tiers

REPOSITORY = Path(__file__).resolve().parents[3]


class TestAuditOfProducers:
    def test_two_producers_in_two_partitions(self, spark: SparkSession, topics: Topics) -> None:
        topic = topics.fresh(partitions=2)
        for partition in (0, 1):
            for _ in range(2):
                topics.fill(topic, range(500), partition=partition)

        report = audit_producers(spark, topics.bootstrap, [topic], records_per_split=300)

        assert report.is_clean
        assert [(row.partition, row.records, row.last_sequence) for row in report.producers] == [
            (0, 500, 499),
            (0, 500, 499),
            (1, 500, 499),
            (1, 500, 499),
        ]
        assert len({row.producer_id for row in report.producers}) == 4
        assert [(row.partition, row.end_offset) for row in report.offsets] == [(0, 1_000), (1, 1_000)]

    @pytest.mark.tier("nightly")
    def test_deleted_records_are_no_gap(self, spark: SparkSession, topics: Topics) -> None:
        topic = topics.fresh()
        for first in range(0, 300, 100):
            topics.fill(topic, range(first, first + 100))
        topics.delete_records_before(topic, 0, 150)
        report = audit_producers(spark, topics.bootstrap, [topic])
        assert report.is_clean
        assert report.offsets[0].log_start_offset == 150

    @pytest.mark.tier("nightly")
    def test_records_nobody_numbered_are_counted(self, spark: SparkSession, topics: Topics) -> None:
        topic = topics.fresh()
        rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("kafka").options(
            **{
                "kafka.bootstrap.servers": topics.bootstrap,
                "kafka.enable.idempotence": "false",
                "topic": topic,
            }
        ).save()
        assert audit_producers(spark, topics.bootstrap, [topic]).records_without_producer_id == 10

    @pytest.mark.tier("nightly")
    def test_an_empty_topic(self, spark: SparkSession, topics: Topics) -> None:
        assert audit_producers(spark, topics.bootstrap, [topics.fresh()]).is_clean

    @pytest.mark.tier("nightly")
    def test_no_such_topic(self, spark: SparkSession, topics: Topics) -> None:
        with pytest.raises(EndpointError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            audit_producers(spark, topics.bootstrap, ["there-is-no-such-topic"])


class TestAuditOfRecords:
    def frame(self, spark: SparkSession, topics: Topics, numbers: list[int]) -> str:
        topic = topics.fresh()
        for number in numbers:
            topics.fill(topic, [number], headers=[("producer", b"p"), ("sequence", b"%d" % number)])
        return topic

    def test_gap_duplicate_and_reordering(self, spark: SparkSession, topics: Topics) -> None:
        topic = self.frame(spark, topics, [0, 1, 3, 2, 2, 6])
        frame = source(spark, topics.bootstrap, topic, includeHeaders=True)
        (row,) = audit_records(frame)
        assert (row.producer, row.records, row.first_sequence, row.last_sequence) == ("p", 6, 0, 6)
        assert (row.missing_records, row.duplicate_records, row.reordered_records) == (2, 1, 2)
        assert audit_records(frame, compacted=True) == [row._replace(missing_records=0)]

    @pytest.mark.tier("nightly")
    def test_a_producer_that_counts_over_the_topic(self, spark: SparkSession, topics: Topics) -> None:
        topic = topics.fresh(partitions=2)
        topics.fill(topic, range(0, 100, 2), partition=0)
        topics.fill(topic, range(1, 100, 2), partition=1)
        frame = source(spark, topics.bootstrap, topic)
        number = "CAST(value AS STRING)"
        per_topic = audit_records(frame, producer="'p'", sequence=number, scope="topic")
        per_partition = audit_records(frame, producer="'p'", sequence=number, scope="partition")
        assert [row.missing_records for row in per_topic] == [0]
        assert [row.missing_records for row in per_partition] == [49, 49]

    def test_records_without_a_number_are_an_error(self, spark: SparkSession, topics: Topics) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(3))
        with pytest.raises(SparkCompatError, match="carry no producer"):
            audit_records(source(spark, topics.bootstrap, topic, includeHeaders=True))
        topics.fill(topic, range(3), headers=[("trace", b"1"), ("sequence", b"one")])
        with pytest.raises(SparkCompatError, match="carry no producer"):
            audit_records(source(spark, topics.bootstrap, topic, includeHeaders=True))


def send_batches(bootstrap: str, topic: str, *base_sequences: int) -> None:
    """Send batches of two records as producer id 424242; return after the endpoint has answered each."""
    with Wire(bootstrap) as wire:
        for base_sequence in base_sequences:
            batch = Batch(records(2)).of(424_242, 0, base_sequence).encode()
            partition = {"index": 0, "records": batch}
            data = [{"name": topic, "partition_data": [partition]}]
            answer = wire.call(
                "produce", 9, acks=-1, timeout=10_000, topic_data=data, transactional_id=None
            ).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


class TestAuditProgram:
    @pytest.mark.tier("nightly")
    def test_a_producer_whose_beginning_is_missing(
        self, spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = topics.fresh()
        send_batches(topics.bootstrap, topic, 6, 8)  # an unknown producer may begin with any sequence
        assert audit.main(["--bootstrap", topics.bootstrap, "--json", topic]) == audit.BREACHED
        (row,) = json.loads(capsys.readouterr().out)["producers"]
        assert (row["producer_id"], row["missing_records"], row["last_sequence"]) == (424_242, 6, 9)
        assert row["findings"][0]["kind"] == "gap"
        assert audit.main(["--bootstrap", topics.bootstrap, topic]) == audit.BREACHED
        assert "sequences 0-5" in capsys.readouterr().out.replace("\n", " ")

    @pytest.mark.tier("nightly")
    def test_clean(self, spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(100))
        assert audit.main(["--bootstrap", topics.bootstrap, "--json", topic]) == audit.CLEAN
        assert json.loads(capsys.readouterr().out)["clean"] is True

    def test_breached(self, spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
        topic = topics.fresh()
        topics.fill(topic, [0, 1, 1, 5])
        by_value = ["--records", "--producer", "'p'", "--sequence", "CAST(value AS STRING)"]
        assert audit.main(["--bootstrap", topics.bootstrap, topic, *by_value]) == audit.BREACHED
        assert "breaches" in capsys.readouterr().out

    @pytest.mark.tier("nightly")
    def test_unreachable(self, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
        assert audit.main(["--bootstrap", "127.0.0.1:1", "t"]) == audit.FAILED
        assert "Nothing answers at 127.0.0.1:1" in capsys.readouterr().err


def test_land_by_date_with_parsed_values(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.fresh()
    day = 86_400_000
    for index in range(3):
        value = json.dumps({"number": index})
        topics.fill(topic, [value], timestamps={value: 1_700_000_000_000 + index * day})
    query = land(spark, topics.bootstrap, topic, str(tmp_path), schema="number int")
    assert query.awaitTermination(180)
    found = spark.read.parquet(str(tmp_path)).select("topic", "date", "record.number").collect()
    assert sorted((row.topic, str(row.date), row.number) for row in found) == [
        (topic, "2023-11-14", 0),
        (topic, "2023-11-15", 1),
        (topic, "2023-11-16", 2),
    ]


def test_dates_and_hours_are_in_utc_whatever_the_zone_of_the_session(spark: SparkSession) -> None:
    seconds = 1_700_000_000, 1_711_850_400, -1  # the second is in the hour that Berlin skips
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in ("Asia/Kolkata", "Europe/Berlin"):
            spark.conf.set("spark.sql.session.timeZone", other)
            records = spark.createDataFrame([(one,) for one in seconds], "seconds long").selectExpr(
                "timestamp_seconds(seconds) AS timestamp"
            )
            found = landing_frame(records, text=False).collect()
            assert [(str(row.date), row.hour) for row in found] == [
                ("2023-11-14", 22),
                ("2024-03-31", 2),
                ("1969-12-31", 23),
            ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_two_queries_land_into_paths_with_one_last_folder(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    paths = [str(tmp_path / parent / "orders") for parent in ("eu", "us")]
    queries = [land(spark, topics.bootstrap, topic, path, every="1 hour") for path in paths]
    try:
        assert len({query.name for query in queries}) == 2
        with pytest.raises(IllegalArgumentException, match="already active"):
            land(spark, topics.bootstrap, topic, paths[0], every="1 hour")
        assert all(query.isActive for query in queries)
    finally:
        for query in queries:
            query.stop()


def test_land_refuses_columns_that_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SparkCompatError, match="colour"):
        land(spark, "127.0.0.1:1", "t", str(tmp_path), partition_by=["colour"])


def test_land_refuses_a_path_whose_checkpoint_is_gone(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    landed_all(spark, topics, topic, tmp_path)
    shutil.rmtree(tmp_path / "_checkpoint")
    with pytest.raises(SparkCompatError, match="belong to another or a newer checkpoint"):
        land(spark, topics.bootstrap, topic, str(tmp_path))


def landed_all(spark: SparkSession, topics: Topics, topic: str, path: Path) -> None:
    query = land(spark, topics.bootstrap, topic, str(path))
    assert query.awaitTermination(180)
    assert topics_read(query) <= {topic}
    assert topics_read(query) or not query.recentProgress


class TestLandOfARecreatedTopic:
    def test_grown_beyond_its_old_end(self, spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))
        landed_all(spark, topics, topic, tmp_path)
        topics.make_anew(topic)
        topics.fill(topic, range(100, 140))
        with pytest.raises(PositionError, match=f"{topic} was deleted and created again .* another path"):
            land(spark, topics.bootstrap, topic, str(tmp_path))
        landed_all(spark, topics, topic, tmp_path / "anew")
        assert spark.read.parquet(str(tmp_path / "anew")).count() == 40

    def test_by_a_pattern(self, spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))
        pattern = {"subscribePattern": f"{topic}.*"}
        for _ in range(2):  # the first run only learns which topics the pattern matches
            assert land(spark, topics.bootstrap, None, str(tmp_path), options=pattern).awaitTermination(180)
        topics.make_anew(topic)
        topics.fill(topic, range(20))
        with pytest.raises(PositionError, match=f"{topic} was deleted and created again"):
            land(spark, topics.bootstrap, None, str(tmp_path), options=pattern)

    @pytest.mark.tier("nightly")
    def test_by_a_pattern_at_an_endpoint_that_does_not_answer(
        self, spark: SparkSession, topics: Topics, tmp_path: Path
    ) -> None:
        """Nothing was compared then, so the query must not begin; a topic that is gone is no such case."""
        topic = topics.fresh()
        topics.fill(topic, range(10))
        landed_all(spark, topics, topic, tmp_path)
        checkpoint = str(tmp_path / "_checkpoint")
        with pytest.raises(EndpointError, match="Nothing answers"):
            CheckpointTopics(spark, f"127.0.0.1:{free_port()}", checkpoint, {}).check_start(None)
        topics.delete(topic)
        CheckpointTopics(spark, topics.bootstrap, checkpoint, {}).check_start(None)

    @pytest.mark.tier("nightly")
    def test_that_a_late_comparison_of_an_earlier_run_meets_first(
        self, spark: SparkSession, topics: Topics, tmp_path: Path
    ) -> None:
        """Spark tells a listener of a query's progress some time after it: the topic may be another one by
        then.
        """
        topic = topics.fresh()
        topics.fill(topic, range(10))
        late = CheckpointTopics(spark, topics.bootstrap, str(tmp_path / "_checkpoint"), {})
        landed_all(spark, topics, topic, tmp_path)
        topics.make_anew(topic)
        topics.fill(topic, range(20))
        with pytest.raises(PositionError, match=f"{topic} was deleted and created again"):
            late.check([topic])
        with pytest.raises(PositionError, match=f"{topic} was deleted and created again"):
            land(spark, topics.bootstrap, topic, str(tmp_path))

    @pytest.mark.tier("nightly")
    def test_with_a_checkpoint_of_an_earlier_release(
        self, spark: SparkSession, topics: Topics, tmp_path: Path
    ) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))
        landed_all(spark, topics, topic, tmp_path)
        (tmp_path / "_checkpoint" / IDS_FILE).unlink()
        landed_all(spark, topics, topic, tmp_path)
        (tmp_path / "_checkpoint" / IDS_FILE).unlink()
        topics.make_anew(topic)
        topics.fill(topic, range(4))
        with pytest.raises(
            PositionError, match=f"continues {topic}-0 at offset 10, but the partition ends at 4"
        ):
            land(spark, topics.bootstrap, topic, str(tmp_path))

    @pytest.mark.tier("nightly")
    def test_while_the_program_runs(self, spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
        topic = topics.fresh()
        topics.fill(topic, range(10))
        landed_all(spark, topics, topic, tmp_path)
        kept = CheckpointTopics(spark, topics.bootstrap, str(tmp_path / "_checkpoint"), {})
        kept.check([topic, "a-topic-that-is-gone"])
        topics.make_anew(topic)
        with pytest.raises(PositionError, match=f"{topic} was deleted and created again"):
            kept.check([topic])


@pytest.mark.tier("nightly")
def test_topic_ids_outlive_a_kill_between_the_two_steps_of_writing(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    landed_all(spark, topics, topic, tmp_path)
    ids = tmp_path / "_checkpoint" / IDS_FILE
    ids.rename(f"{ids}.tmp")
    topics.make_anew(topic)
    topics.fill(topic, range(20))
    with pytest.raises(PositionError, match="created again"):
        land(spark, topics.bootstrap, topic, str(tmp_path))


def test_land_of_a_topic_that_does_not_exist(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--bootstrap", topics.bootstrap, "--path", str(tmp_path), "no-such-topic"]
    assert land_program.main(arguments) == NOT_BEGUN
    (line,) = capsys.readouterr().err.splitlines()
    assert "no-such-topic" in line


@pytest.mark.parametrize("launcher", in_tiers(["python", "spark-submit"], nightly=["python"]))
def test_as_programs_of_their_own(topics: Topics, tmp_path: Path, launcher: str) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(100))
    jars = spark_connector_libs()
    script = REPOSITORY / "spark_kafka_compat" / "pipelines" / "land.py"
    if launcher == "python":
        command = [sys.executable, "-m", "seqgate.spark_kafka_compat.pipelines.land"]
    else:
        program = Path(sys.executable).parent / "spark-submit"
        listed = ",".join(str(jar) for jar in jars.glob("*.jar"))
        command = [str(program), "--master", "local[1]", "--jars", listed, str(script)]
    command += ["--bootstrap", topics.bootstrap, "--path", str(tmp_path / "out"), topic]
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {JARS_VARIABLE: str(jars), "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith(f"landed 100 records of {topic} in {tmp_path / 'out'}\n")
