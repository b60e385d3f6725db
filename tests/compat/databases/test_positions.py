from __future__ import annotations

import threading
from uuid import UUID

import pytest

from seqgate.spark_kafka_compat.databases import Database
from seqgate.spark_kafka_compat.positions import (
    TABLES,
    Positions,
    TopicPartition,
    claim,
    create_tables,
    stored_positions,
)
from seqgate.spark_kafka_compat.session import FencedError, PositionError
from tests.support.postgresql_server import PostgresqlServer

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def database(database_url: str) -> Database:
    return Database(database_url)


class TestClaim:
    def test_positions_move_with_the_transaction(self, database: Database) -> None:
        owned = claim(database, "p", lambda _: {A0: 5})
        with owned.step() as step:
            assert step.positions == {A0: 5}
            step.advance({A0: 7, A1: 3})
        with pytest.raises(ZeroDivisionError), owned.step() as step:  # noqa: PT012
            step.advance({A0: 9})
            raise ZeroDivisionError
        assert stored_positions(database, "p") == {A0: 7, A1: 3}

    def test_the_first_positions_are_stored_at_once(self, database: Database) -> None:
        claim(database, "p", lambda _: {A0: 5})
        seen = []
        owned = claim(database, "p", lambda stored: seen.append(dict(stored)) or {A1: 2})  # type: ignore[func-returns-value]
        assert seen == [{A0: 5}]
        assert owned.positions == stored_positions(database, "p") == {A0: 5, A1: 2}

    def test_pipelines_have_separate_positions(self, database: Database) -> None:
        one = claim(database, "one", lambda _: {A0: 5})
        claim(database, "other", lambda _: {A0: 6})
        with one.step() as step:
            assert step.positions == {A0: 5}

    def test_an_older_copy_is_fenced_before_it_writes(self, database: Database) -> None:
        older = claim(database, "p", lambda _: {A0: 5})
        newer = claim(database, "p", lambda _: {})
        with (
            pytest.raises(FencedError, match=r"'p' has started since \(generation 2, this one is 1\)"),
            older.step(),
        ):
            pytest.fail("a fenced copy of the pipeline must not ask for the first positions")
        with newer.step() as step:
            step.advance({A0: 6})
        assert stored_positions(database, "p") == {A0: 6}

    def test_a_newer_copy_waits_for_the_older_copys_transaction(self, database: Database) -> None:
        older = claim(database, "p", lambda _: {A0: 5})
        claimed: list[Positions] = []
        thread = threading.Thread(target=lambda: claimed.append(claim(database, "p", lambda _: {}).positions))
        with older.step() as step:
            thread.start()
            step.advance({A0: 6})
            thread.join(0.2)
            assert not claimed
        thread.join()
        assert claimed == [{A0: 6}]

    def test_a_position_never_moves_back(self, database: Database) -> None:
        owned = claim(database, "p", lambda _: {A0: 5})
        with pytest.raises(PositionError, match="can't move back to 4"), owned.step() as step:
            step.advance({A0: 4})

    def test_a_recreated_topic_is_recognized_by_its_id(self, database: Database) -> None:
        old, new = UUID(int=1), UUID(int=2)
        claim(database, "p", lambda _: {A0: 5}, topic_ids={"a": old, "b": old})
        claim(database, "p", lambda _: {B0: 5}, topic_ids={"a": old, "b": new})
        claim(database, "p", lambda _: {})
        for topic in ("a", "b"):
            with pytest.raises(PositionError, match=f"The topic {topic} was recreated"):
                claim(database, "p", lambda _: {}, topic_ids={topic: UUID(int=3)})
        assert claim(database, "q", lambda _: {}, topic_ids={"a": new}).positions == {}

    def test_many_copies_can_create_the_tables_at_once(self, database: Database) -> None:
        failures: list[Exception] = []

        def create() -> None:
            try:
                create_tables(database)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_a_role_without_the_right_to_create_tables(self, postgresql: PostgresqlServer) -> None:
        url = postgresql.fresh_database()
        owner = Database(url)
        create_tables(owner)
        role = url.rsplit("/", 1)[-1]
        with owner.transaction() as transaction:
            transaction.execute(f"CREATE ROLE {role} LOGIN")
            transaction.execute(f"GRANT SELECT, INSERT, UPDATE ON {', '.join(TABLES)} TO {role}")
        owned = claim(Database(url.replace("postgres@", f"{role}@")), "p", lambda _: {A0: 5})
        with owned.step() as step:
            step.advance({A0: 6})
        assert stored_positions(owner, "p") == {A0: 6}
