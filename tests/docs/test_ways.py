"""What the comments and languages of blocks mean, and that a wrong block is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import data
from tests.docs.command_lines import faults
from tests.docs.outputs import differences, is_part
from tests.docs.session import Failed, Session
from tests.docs.ways import Way, plans, table
from tests.support.markdown import Block, blocks


def page(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(text)
    return path


def block(language: str, text: str) -> Block:
    return Block(Path("page.md"), 1, language, text, ())


class TestWays:
    @pytest.mark.parametrize(
        ("text", "way"),
        [
            ("```sh\nseqgate status\n```\n", Way.RUN),
            ("```python\nprint()\n```\n", Way.RUN),
            ("```toml\nlisteners = ''\n```\n", Way.PARSED),
            ("<!-- not run: a disk\nof yours -->\n```sh\nls\n```\n", Way.PARSED),
            ("<!-- run by tests/docs/test_ways.py -->\n\n```go\nx\n```\n", Way.ELSEWHERE),
            ("<!-- examples/one/main.go -->\n```go\nx\n```\n", Way.PART),
            ("<!-- not run: far away -->\n\nWords.\n\n```sh\nls\n```\n", Way.RUN),
            ("```\nwords\n```\n", Way.UNDECLARED),
            ("```go\nx\n```\n", Way.UNDECLARED),
            ("```text\na drawing\n```\n", Way.UNDECLARED),
            ("```text\nUsage: seqgate status\n```\n", Way.GENERATED),
        ],
    )
    def test_the_way_of_a_block(self, tmp_path: Path, text: str, way: Way) -> None:
        (found,) = plans(page(tmp_path, text))
        assert found.way is way

    def test_an_output_follows_what_prints_it(self, tmp_path: Path) -> None:
        text = "```sh\nls\n```\n\nIt prints:\n\n<!-- numbers vary: of files -->\n```text\n1\n```\n\n```text\n2\n```\n"
        first, second, third = plans(page(tmp_path, text))
        assert (first.way, second.way, third.way) == (Way.RUN, Way.OUTPUT, Way.UNDECLARED)
        assert second.numbers_vary

    def test_commands_before_a_block(self, tmp_path: Path) -> None:
        (found,) = plans(page(tmp_path, "- item\n\n  <!-- first: mkdir a -->\n  ```sh\n  ls a\n  ```\n"))
        assert (found.first, found.block.text, found.block.line) == ("mkdir a", "ls a\n", 4)

    def test_the_table_counts_every_block(self) -> None:
        lines = table()
        assert lines[0].endswith("blocks, of which")
        assert any("run by another test: transactions.md" in line for line in lines)


class TestCommandLines:
    @pytest.mark.parametrize(
        "script",
        [
            "seqgate topics create orders --partitions 4   # a comment",
            "echo x | seqgate produce orders --key-separator :",
            "sudo -u seqgate /opt/seqgate/bin/seqgate status > file 2>&1",
            "seqgate serve --listen 127.0.0.1:1 \\\n  --set num.partitions=4 &",
            "seqgate --version; make run LISTEN=x; pip install 'seqgate[console,spark]'",
            "python -m seqgate.spark_kafka_compat.pipelines.land --help",
            "kafka-topics.sh --list",
        ],
    )
    def test_right(self, script: str) -> None:
        assert faults(script) == []

    @pytest.mark.parametrize(
        ("script", "fault"),
        [
            ("seqgate topics make orders", "seqgate topics has no command make"),
            ("seqgate --verbose status", "seqgate has no option --verbose"),
            ("seqgate topics create orders --shards 4", "--shards"),
            ("true && seqgate status surplus", "seqgate status takes no further argument: surplus"),
            ("seqgate topics create", "seqgate topics create needs TOPIC"),
            ("seqgate serve --set num.partition=4", "--set names no setting: num.partition"),
            ("seqgate topics create a --set log.dirs=x", "--set names no setting: log.dirs"),
            ("make everything", "the Makefile has no target everything"),
            ("pip install '.[consoles]'", "there is no extra consoles"),
            ("python -m seqgate.spark_kafka_compat.pipelines.nothing", "there is no module"),
            ("kafka-topic.sh --list", "kafka-topic is no tool of Kafka's"),
            ("if true; then", "syntax error"),
        ],
    )
    def test_wrong(self, script: str, fault: str) -> None:
        (found,) = faults(script)
        assert fault in found


class TestData:
    @pytest.mark.parametrize(
        ("language", "text"),
        [
            ("toml", 'listeners = "PLAINTEXT://127.0.0.1:9092"\n[seqgate.logging]\nformat = "json"\n'),
            ("toml", '[project]\nname = "x"\n'),
            ("ini", "[Service]\nExecStart=/opt/bin/seqgate serve --data-dir /var\n"),
            ("yaml", "a: 1\n---\nb: 2\n"),
            ("json", '{"a": 1}\n{"b": 2}\n'),
            ("properties", "seqgate.metrics.listener=127.0.0.1:1\n"),
            ("sql", "CREATE TABLE a (b TEXT);"),
            ("promql", "rate(seqgate_x[5m])"),
            ("text", "$ seqgate names ledger --name x\nanything"),
        ],
    )
    def test_right(self, language: str, text: str) -> None:
        assert data.faults(block(language, text)) == []

    @pytest.mark.parametrize(
        ("language", "text"),
        [
            ("toml", "listeners = "),
            ("toml", 'listener = "PLAINTEXT://127.0.0.1:9092"'),
            ("ini", "[Service]\nExecStart=/opt/bin/seqgate serve --data /var\n"),
            ("ini", "words"),
            ("yaml", "a: [1"),
            ("yaml", "# nothing"),
            ("json", "{'a': 1}"),
            ("properties", "seqgate.metric.listener=127.0.0.1:1\n"),
            ("properties", ""),
            ("sql", "CREATE TABLE a b TEXT;"),
            ("promql", "rates(seqgate_x[5m])"),
            ("text", "$ seqgate name ledger\nanything"),
            ("python", "print("),
        ],
    )
    def test_wrong(self, language: str, text: str) -> None:
        assert len(data.faults(block(language, text))) == 1


class TestOutputs:
    def test_what_differs_from_run_to_run(self) -> None:
        told = "ready (pid 12)\nTopic a (aHLj_HQwRweCCSUmc5i1SA)   0.4 s\n────\n\n2026-11-27 05:30:21"
        printed = "ready (pid 9876)\nTopic a (bHLj_HQwRweCCSUmc5i1SB)  12 ms\n───────\n2027-01-02 03:04:05\n"
        assert differences(told, printed) == []

    def test_other_numbers(self) -> None:
        assert differences("10 records", "1,000 records", numbers_vary=True) == []
        assert differences("10 records", "11 records")[-2:] == ["-10 records", "+11 records"]

    def test_a_missing_line(self) -> None:
        assert differences("one\ntwo", "one", numbers_vary=True)[-1] == "-two"


class TestParts:
    FILE = "class A:\n    def b(self):\n        return 1\n\n    def c(self):\n        return 2\n"

    def test_lines_of_the_file(self) -> None:
        assert is_part("def c(self):\n    return 2\n", self.FILE)
        assert is_part(self.FILE, self.FILE)

    def test_other_lines(self) -> None:
        assert not is_part("def c(self):\n    return 3\n", self.FILE)
        assert not is_part("def b(self):\n    return 2\n", self.FILE)
        assert not is_part("return", self.FILE)


class TestSession:
    def test_blocks_share_a_terminal_and_a_gateway(self, tmp_path: Path) -> None:
        with Session(tmp_path) as session:
            assert session.shell("greeting=hello; mkdir work; cd work") == ""
            assert session.shell("echo $greeting") == "hello\n"
            assert session.python("import os\nprint(os.path.basename(os.getcwd()))") == "work\n"
            session.shell("cd ..; seqgate topics create orders")
            listed = session.shell("seqgate topics list --bootstrap localhost:9092")
            assert "orders" in listed
            ready = session.of_page((tmp_path / "serve.out").read_text())
            assert "\nseqgate ready on 127.0.0.1:9092 " in ready

    def test_a_command_that_fails_is_found(self, tmp_path: Path) -> None:
        with Session(tmp_path) as session, pytest.raises(Failed, match="told"):
            session.shell("echo told; false; echo more")

    def test_a_command_that_a_page_says_is_refused(self, tmp_path: Path) -> None:
        with Session(tmp_path) as session:
            session.shell("echo a | grep b    # refused\necho told    # stored")
            with pytest.raises(Failed, match="was not refused"):
                session.shell("echo a | grep a    # refused: by nobody")

    def test_a_gateway_that_does_not_start_is_found(self, tmp_path: Path) -> None:
        with Session(tmp_path) as session, pytest.raises(Failed, match="Unknown setting"):
            session.shell("seqgate serve --set no.such.setting=1")

    def test_a_comment_within_a_block_is_none(self, tmp_path: Path) -> None:
        (found,) = blocks(page(tmp_path, "```sh\n# <!-- not run: x -->\n```\n"))
        assert found.comments == ()
