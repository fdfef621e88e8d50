from headwater.groups.events import CommittedOffset, OffsetCommitted, OffsetDeleted
from headwater.groups.offsets import GroupOffsets

DAY_MS = 24 * 3_600_000
NOTHING: frozenset[str] = frozenset()


def offsets(*commits: tuple[str, int, int, int]) -> GroupOffsets:
    group = GroupOffsets("g")
    for topic, partition, offset, at_ms in commits:
        group.apply(OffsetCommitted("g", topic, partition, CommittedOffset(offset, -1, "", at_ms)))
    return group


def test_the_last_commit_counts_also_when_it_goes_back() -> None:
    group = offsets(("t", 0, 10, 1), ("t", 0, 3, 2))
    committed = group.get("t", 0)
    assert committed is not None and committed.offset == 3
    assert len(group) == 1


def test_what_was_never_committed_is_absent() -> None:
    group = offsets(("t", 0, 10, 1))
    assert group.get("t", 1) is None and group.get("u", 0) is None


def test_a_deleted_offset_is_gone_and_so_is_its_empty_topic() -> None:
    group = offsets(("t", 0, 10, 1), ("t", 1, 11, 1))
    group.apply(OffsetDeleted("g", "t", 0))
    group.apply(OffsetDeleted("g", "t", 7))
    assert [(topic, partition) for topic, partition, _ in group] == [("t", 1)]
    group.apply(OffsetDeleted("g", "t", 1))
    assert not group and group.topics() == []


def test_offsets_expire_when_their_retention_is_over() -> None:
    group = offsets(("t", 0, 1, 0), ("t", 1, 1, 10))
    assert group.expired(DAY_MS - 1, DAY_MS, 0, NOTHING) == []
    assert group.expired(DAY_MS, DAY_MS, 0, NOTHING) == [OffsetDeleted("g", "t", 0)]


def test_retention_counts_from_when_the_group_stopped_reading() -> None:
    group = offsets(("t", 0, 1, 0))
    assert group.expired(DAY_MS + 999, DAY_MS, 1_000, NOTHING) == []
    assert len(group.expired(DAY_MS + 1_000, DAY_MS, 1_000, NOTHING)) == 1


def test_a_commit_to_a_group_that_is_long_empty_is_kept_for_a_whole_retention() -> None:
    group = offsets(("t", 0, 1, 5 * DAY_MS))
    assert group.expired(5 * DAY_MS + 1, DAY_MS, 0, NOTHING) == []


def test_what_the_group_still_reads_does_not_expire() -> None:
    group = offsets(("t", 0, 1, 0), ("u", 0, 1, 0))
    assert group.expired(9 * DAY_MS, DAY_MS, 0, frozenset({"t"})) == [OffsetDeleted("g", "u", 0)]


def test_a_retention_that_the_client_asked_for_goes_before_the_brokers() -> None:
    group = GroupOffsets("g")
    group.apply(OffsetCommitted("g", "t", 0, CommittedOffset(1, -1, "", 0, expire_timestamp_ms=50)))
    assert group.expired(49, DAY_MS, 0, NOTHING) == []
    assert len(group.expired(50, DAY_MS, 0, NOTHING)) == 1


def test_everything_or_one_topic_can_be_forgotten() -> None:
    group = offsets(("t", 0, 1, 0), ("t", 1, 1, 0), ("u", 0, 1, 0))
    assert group.deleted("t") == [OffsetDeleted("g", "t", 0), OffsetDeleted("g", "t", 1)]
    assert len(group.deleted()) == 3
    assert group.deleted("v") == []
