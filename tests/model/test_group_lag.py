"""What a group has still to read, as arithmetic."""

from headwater.model.group_lag import TotalLag, partition_lag, partitions_read, total

TOPICS = {"orders": 3, "other": 1}


def test_a_stopped_group_reads_every_partition_of_its_topics() -> None:
    assert partitions_read({("orders", 1)}, (), TOPICS) == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_a_running_group_reads_what_it_has_a_position_in_and_what_is_assigned() -> None:
    assert partitions_read({("orders", 1)}, {("other", 0)}, TOPICS) == [("orders", 1), ("other", 0)]


def test_a_group_that_only_keeps_offsets_reads_where_they_are() -> None:
    assert partitions_read({("orders", 1)}, (), TOPICS, is_simple=True) == [("orders", 1)]


def test_a_subscription_reads_every_partition_of_its_topic() -> None:
    assert partitions_read({("orders", 1)}, (), TOPICS, is_simple=True, subscribed="other") == [
        ("orders", 1),
        ("other", 0),
    ]


def test_what_is_gone_is_not_read() -> None:
    assert partitions_read({("orders", 7), ("gone", 0)}, {("gone", 1)}, TOPICS, subscribed="gone") == []


def test_where_there_is_no_position_everything_in_the_log_is_counted() -> None:
    assert partition_lag(("orders", 0), None, 10, 40).lag == 30
    assert partition_lag(("orders", 0), None, 10, 40, begins_at_end=True).lag == 0
    assert partition_lag(("orders", 0), 25, None, 40, begins_at_end=True).lag == 15
    assert partition_lag(("orders", 0), 50, None, 40).lag == 0
    assert partition_lag(("orders", 0), 25, None, None).lag is None


def test_a_total_tells_what_is_not_known() -> None:
    known, without, leaderless = (
        partition_lag(("orders", 0), 5, None, 10),
        partition_lag(("orders", 1), None, 0, 4),
        partition_lag(("orders", 2), 3, None, None),
    )
    assert total([known, without, leaderless]) == TotalLag(9, 2)
    assert total([leaderless]) == TotalLag(None, 1)
    assert total([]) == TotalLag(None, 0)
