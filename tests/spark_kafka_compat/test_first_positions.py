from __future__ import annotations

import pytest

from seqgate.spark_kafka_compat.positions import Starting, TopicPartition, first_positions
from seqgate.spark_kafka_compat.session import PositionError

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class TestFirstPositions:
    @pytest.mark.parametrize(("starting", "first"), [("earliest", 10), ("latest", 20), ({A0: 13, B0: 1}, 13)])
    def test_a_new_topic_begins_where_starting_says(self, starting: Starting, first: int) -> None:
        assert first_positions({A0: (10, 20)}, starting)({B0: 3}) == {A0: first}

    def test_a_stored_position_takes_precedence(self) -> None:
        assert first_positions({A0: (10, 20)}, "latest")({A0: 15, B0: 3}) == {A0: 15}

    def test_a_new_partition_of_a_known_topic_is_read_from_the_start(self) -> None:
        assert first_positions({A0: (10, 20), A1: (0, 9)}, "latest")({A0: 15}) == {A0: 15, A1: 0}

    def test_a_partition_without_a_starting_offset_is_refused(self) -> None:
        with pytest.raises(PositionError, match="given for a-0"):
            first_positions({A0: (10, 20)}, {B0: 1})({})

    @pytest.mark.parametrize("offset", [-2, 9, 21])
    def test_a_starting_offset_outside_of_the_partition_is_refused(self, offset: int) -> None:
        with pytest.raises(PositionError, match="a-0 has the offsets 10 to 20"):
            first_positions({A0: (10, 20)}, {A0: offset})({})

    def test_deleted_records_are_refused_or_skipped(self) -> None:
        with pytest.raises(PositionError, match="a-0 begins at 10, but is written up to 9 only"):
            first_positions({A0: (10, 20)})({A0: 9})
        assert first_positions({A0: (10, 20)}, may_skip=True)({A0: 9}) == {A0: 10}

    def test_a_partition_shorter_than_its_position_is_refused(self) -> None:
        assert first_positions({A0: (10, 20)})({A0: 20}) == {A0: 20}
        with pytest.raises(PositionError, match="recreated"):
            first_positions({A0: (10, 20)})({A0: 21})
