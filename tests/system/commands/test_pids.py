"""`seqgate pids` on running, stopped and killed gateways, and with Redis."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.clients import next_producer_id
from tests.system.commands.conftest import seqgate, seqgate_process


def blocks(*arguments: str | Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = seqgate("pids", "list", "--json", *arguments).json["blocks"]
    return listed


def check(*arguments: str | Path) -> None:
    result = seqgate("pids", "check", "--json", *arguments).json
    assert result["overlaps"] == []
    assert result["checked"] == len(blocks(*arguments))


class TestRunningGateway:
    def test_lists_used_and_left(self, gateway: GatewayProcess) -> None:
        for _ in range(7):
            next_producer_id(gateway.bootstrap)
        listing = seqgate("pids", "list", "--json", "--data-dir", gateway.data_dir).json
        assert (listing["store"], listing["gateway"]) == ("embedded", "running")
        (block,) = listing["blocks"]
        assert (block["first_producer_id"], block["last_producer_id"]) == (0, 999)
        assert (block["used"], block["left"], block["state"]) == (7, 993, "in use")
        assert block["owner"] == "node-1"

    def test_in_a_process_of_its_own(self, gateway: GatewayProcess) -> None:
        here = ("--data-dir", gateway.data_dir)
        assert seqgate_process("pids", "list", "--json", *here).json["blocks"] == blocks(*here)
        refused = seqgate_process("pids", "move", "--yes", "0", *here)
        assert (refused.code, refused.stdout) == (1, "")
        assert (
            refused.stderr
            == "seqgate: the next producer id must be between 1000 and 4611686018427387903, not 0\n"
        )

    def test_the_table_has_one_line_per_block(self, gateway: GatewayProcess) -> None:
        seqgate("pids", "claim", "--yes", "5", "--owner", "loader", "--data-dir", gateway.data_dir)
        shown = seqgate("pids", "list", "--data-dir", gateway.data_dir).stdout.splitlines()
        assert shown[0].split()[:2] == ["first", "id"]
        assert [line.split()[:3] for line in shown[2:4]] == [
            ["0", "999", "node-1"],
            ["1000", "1004", "loader"],
        ]
        assert shown[4].startswith("2 blocks in the embedded store")
        shown = seqgate("pids", "list", "--last", "1", "--data-dir", gateway.data_dir).stdout.splitlines()
        assert shown[2].split()[:3] == ["1000", "1004", "loader"]

    def test_claims_never_overlap_each_other_or_the_gateway(self, tmp_path: Path) -> None:
        settings = {"seqgate.producer.id.block.size": "5"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            taken: set[int] = set()
            for size in (3, 10, 1):
                for _ in range(6):
                    producer_id = next_producer_id(gateway.bootstrap)
                    assert producer_id not in taken
                    taken.add(producer_id)
                claimed = seqgate(
                    "pids", "claim", "--yes", str(size), "--json", "--data-dir", gateway.data_dir
                ).json
                ids = set(range(claimed["first_producer_id"], claimed["last_producer_id"] + 1))
                assert len(ids) == size
                assert not ids & taken
                taken |= ids
            check("--data-dir", gateway.data_dir)

    def test_owner(self, gateway: GatewayProcess) -> None:
        producer_id = next_producer_id(gateway.bootstrap)
        found = seqgate("pids", "owner", str(producer_id), "--json", "--data-dir", gateway.data_dir).json
        assert (found["block"]["owner"], found["handed_out"]) == ("node-1", True)
        found = seqgate("pids", "owner", "998", "--data-dir", gateway.data_dir)
        assert "998 belongs to node-1. It was not handed out so far." in found.stdout
        unknown = seqgate("pids", "owner", "123456", "--data-dir", gateway.data_dir, code=1)
        assert "123456 is not claimed yet" in unknown.stdout

    def test_after_a_move_the_next_id_comes_from_beyond(self, gateway: GatewayProcess) -> None:
        assert next_producer_id(gateway.bootstrap) < 1000
        moved = seqgate("pids", "move", "--yes", "50000", "--json", "--data-dir", gateway.data_dir).json
        assert moved == {"previous": 1000, "current": 50000}
        assert next_producer_id(gateway.bootstrap) == 50000
        states = [block["state"] for block in blocks("--data-dir", gateway.data_dir)]
        assert states == ["given up", "in use"]
        back = seqgate("pids", "move", "--yes", "10", "--data-dir", gateway.data_dir, code=1)
        assert "not 10" in back.stderr
        planned = seqgate("pids", "move", "--dry-run", "10", "--data-dir", gateway.data_dir, code=1)
        assert "can't be moved back from 51000 to 10" in planned.stderr
        named = ("pids", "claim", "--owner", "node-7", "--dry-run", "--data-dir", gateway.data_dir)
        assert "node-7 is the name of a gateway" in seqgate(*named, code=1).stderr
        assert next_producer_id(gateway.bootstrap) == 50001
        skipped = seqgate("pids", "owner", "20000", "--data-dir", gateway.data_dir, code=1)
        assert "20000 was skipped" in skipped.stdout
        check("--data-dir", gateway.data_dir)

    def test_a_long_data_directory(self, tmp_path: Path) -> None:
        data_dir = tmp_path.joinpath(*["a-directory-with-a-long-name" for _ in range(8)])
        data_dir.parent.mkdir(parents=True)
        assert len(os.fsencode(data_dir)) > 200
        with GatewayProcess(data_dir) as gateway:
            assert next_producer_id(gateway.bootstrap) == 0
            (block,) = blocks("--data-dir", data_dir)
            assert block["used"] == 1


class TestStoppedGateway:
    @pytest.fixture(params=["stopped", "killed"])
    def data_dir(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """The data directory of a stopped gateway that handed out five ids."""
        process = GatewayProcess(tmp_path / "data").start()
        for _ in range(5):
            next_producer_id(process.bootstrap)
        if request.param == "killed":
            process.kill()
            assert (process.data_dir / "control.sock").exists()
        else:
            process.stop()
            assert not (process.data_dir / "control.sock").exists()
        return process.data_dir

    def test_its_blocks_are_given_up_and_how_far_they_were_used_is_unknown(self, data_dir: Path) -> None:
        listing = seqgate("pids", "list", "--json", "--data-dir", data_dir).json
        assert listing["gateway"] == "stopped"
        (block,) = listing["blocks"]
        assert (block["used"], block["left"], block["state"]) == (None, None, "given up")
        shown = seqgate("pids", "list", "--data-dir", data_dir).stdout
        assert "The gateway is not running" in shown

    def test_looking_changes_nothing(self, data_dir: Path) -> None:
        def files() -> dict[str, bytes]:
            return {str(path): path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}

        before = files()
        blocks("--data-dir", data_dir)
        seqgate("pids", "owner", "4", "--data-dir", data_dir)
        check("--data-dir", data_dir)
        assert files() == before

    def test_claims_and_moves_hold_when_it_runs_again(self, data_dir: Path) -> None:
        first = seqgate("pids", "claim", "--yes", "10", "--json", "--data-dir", data_dir).json
        second = seqgate("pids", "claim", "--yes", "10", "--json", "--data-dir", data_dir).json
        assert (first["first_producer_id"], second["first_producer_id"]) == (1000, 1010)
        with GatewayProcess(data_dir) as gateway:
            assert next_producer_id(gateway.bootstrap) == 1020
        moved = seqgate("pids", "move", "--yes", "70000", "--json", "--data-dir", data_dir).json
        assert moved == {"previous": 2020, "current": 70000}
        with GatewayProcess(data_dir) as gateway:
            assert next_producer_id(gateway.bootstrap) == 70000
            check("--data-dir", data_dir)
        owners = [block["owner"] for block in blocks("--data-dir", data_dir)]
        assert owners == ["node-1", "operator", "operator", "node-1", "node-1"]

    def test_a_torn_end_of_the_metadata_is_not_seen(self, data_dir: Path) -> None:
        (segment,) = sorted((data_dir / "__cluster_metadata-0").glob("*.log"))
        before = segment.stat().st_size
        seqgate("pids", "claim", "--yes", "10", "--data-dir", data_dir)
        known = blocks("--data-dir", data_dir)
        whole = segment.read_bytes()
        segment.write_bytes(whole + whole[before:-3])  # one more claim, of which not all was written
        assert blocks("--data-dir", data_dir) == known

    def test_a_directory_in_use_without_a_socket_is_not_written(self, data_dir: Path) -> None:
        with GatewayProcess(data_dir) as gateway:
            (data_dir / "control.sock").unlink()
            refused = seqgate("pids", "claim", "--yes", "10", "--data-dir", data_dir, code=1)
            assert "is in use by a process that does not answer" in refused.stderr
            assert len(blocks("--data-dir", data_dir)) == 2
            assert next_producer_id(gateway.bootstrap) == 1000


def test_what_is_no_data_directory_is_not_made_one(tmp_path: Path) -> None:
    for command in (["list"], ["claim", "5"], ["move", "5"], ["check"], ["owner", "1"]):
        refused = seqgate("pids", *command, "--data-dir", tmp_path / "nothing", code=1)
        assert "is no data directory of a gateway" in refused.stderr
    assert not (tmp_path / "nothing").exists()


class TestRedis:
    def test_without_a_gateway(self, redis_url: str) -> None:
        redis = ("--redis", redis_url)
        first = seqgate("pids", "claim", "--yes", "10", "--owner", "loader", "--json", *redis).json
        second = seqgate("pids", "claim", "--yes", "10", "--json", *redis).json
        assert second["first_producer_id"] > first["last_producer_id"]
        listing = seqgate("pids", "list", "--json", *redis).json
        assert (listing["store"], listing["gateway"]) == ("redis", None)
        assert [block["owner"] for block in listing["blocks"]] == ["loader", "operator"]
        check(*redis)
        target = second["last_producer_id"] + 5000
        moved = seqgate("pids", "move", "--yes", str(target), "--json", *redis).json
        assert moved == {"previous": second["last_producer_id"] + 1, "current": target}
        third = seqgate("pids", "claim", "--yes", "1", "--json", *redis).json
        assert third["first_producer_id"] >= target

    def test_prefixes_keep_stores_apart(self, redis_url: str) -> None:
        seqgate("pids", "claim", "--yes", "10", "--redis", redis_url)
        assert len(blocks("--redis", redis_url)) == 1
        assert blocks("--redis", redis_url, "--prefix", "other:") == []

    def test_a_gateway_and_an_operator_see_the_same_blocks(self, tmp_path: Path, redis_url: str) -> None:
        settings = {"seqgate.producer.id.store": "redis", "seqgate.redis.url": redis_url}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            ids = {next_producer_id(gateway.bootstrap) for _ in range(3)}
            claimed = seqgate("pids", "claim", "--yes", "10", "--json", "--data-dir", gateway.data_dir).json
            listing = seqgate("pids", "list", "--json", "--data-dir", gateway.data_dir).json
            assert (listing["store"], listing["gateway"]) == ("redis", "running")
            assert [block["state"] for block in listing["blocks"]] == ["in use", "by hand"]
            assert listing["blocks"][0]["used"] == 3
            assert [block["first_producer_id"] for block in blocks("--redis", redis_url)] == [
                block["first_producer_id"] for block in listing["blocks"]
            ]
            target = claimed["last_producer_id"] + 1_000_000
            seqgate("pids", "move", "--yes", str(target), "--data-dir", gateway.data_dir)
            beyond = next_producer_id(gateway.bootstrap)
            assert beyond >= target
            assert beyond not in ids
            check("--redis", redis_url)
        for command in (["list"], ["claim", "5"]):
            refused = seqgate("pids", *command, "--data-dir", gateway.data_dir, code=1)
            assert "takes its producer ids from Redis" in refused.stderr

    def test_overlaps_are_told_and_fail_the_check(self, redis_url: str) -> None:
        from redis import Redis

        with Redis(unix_socket_path=redis_url.removeprefix("unix://")) as client:
            key = "{seqgate::producer-ids}:blocks"
            client.rpush(key, "0 1000 1700000000000 node-1", "500 1500 1700000000001 node-2")
        failed = seqgate("pids", "check", "--redis", redis_url, code=1)
        assert "500 to 999" in failed.stdout
        assert "1 pair of them share ids" in failed.stdout
        assert '"checked": 2' in seqgate("pids", "check", "--json", "--redis", redis_url, code=1).stdout

    def test_the_settings_of_a_stopped_gateway_lead_to_its_redis(
        self, tmp_path: Path, redis_url: str
    ) -> None:
        seqgate("pids", "claim", "--yes", "10", "--redis", redis_url)
        config = tmp_path / "seqgate.toml"
        config.write_text(f'"seqgate.producer.id.store" = "redis"\n"seqgate.redis.url" = "{redis_url}"\n')
        listing = seqgate("pids", "list", "--json", "--config", config, "--data-dir", tmp_path / "data").json
        assert (listing["store"], len(listing["blocks"])) == ("redis", 1)

    def test_away_or_misspelt_it_is_told_in_a_sentence(self, tmp_path: Path) -> None:
        away = seqgate("pids", "list", "--redis", f"unix://{tmp_path}/nobody.sock", code=1)
        assert "Redis" in away.stderr
        misspelt = seqgate("pids", "list", "--redis", "htp://somewhere", code=1)
        assert "seqgate.redis.url" in misspelt.stderr
