from headwater.queues.key_lanes import KeyLanes


def lanes(*offsets: int) -> KeyLanes:
    made = KeyLanes()
    for offset in offsets:
        made.join(b"k", offset)
    return made


def test_the_lowest_of_a_key_is_for_anybody_and_the_next_for_who_holds_it() -> None:
    lane = lanes(1, 2)
    assert lane.may_take(b"k", 1, "ann")
    assert not lane.may_take(b"k", 2, "ann")
    lane.take(b"k", 1, "ann")
    assert lane.may_take(b"k", 2, "ann")
    assert not lane.may_take(b"k", 2, "bob")


def test_a_record_given_back_waits_until_later_ones_of_its_key_are_not_held() -> None:
    lane = lanes(1, 2)
    lane.take(b"k", 1, "ann")
    lane.take(b"k", 2, "ann")
    lane.give_back(b"k", 1)
    assert not lane.may_take(b"k", 1, "ann")
    assert not lane.may_take(b"k", 1, "bob")
    lane.leave(b"k", 2)
    assert lane.may_take(b"k", 1, "bob")


def test_a_lane_that_nobody_holds_offers_its_lowest() -> None:
    lane = lanes(5, 3, 9, 3)
    assert lane.free_head(b"k") == 3
    lane.take(b"k", 3, "ann")
    assert lane.free_head(b"k") is None
    lane.leave(b"k", 3)
    assert lane.free_head(b"k") == 5


def test_a_lane_without_records_is_forgotten() -> None:
    lane = lanes(1)
    lane.leave(b"k", 7)
    lane.leave(b"k", 1)
    lane.leave(b"k", 1)
    assert len(lane) == 0
    assert lane.may_take(b"k", 9, "ann")
