from headwater.queues.key_order import KeyOrder


def key_order(*offsets: int) -> KeyOrder:
    made = KeyOrder()
    for offset in offsets:
        made.join(b"k", offset)
    return made


def test_the_lowest_of_a_key_is_for_anybody_and_the_next_for_who_holds_it() -> None:
    order = key_order(1, 2)
    assert order.may_take(b"k", 1, "ann")
    assert not order.may_take(b"k", 2, "ann")
    order.take(b"k", 1, "ann")
    assert order.may_take(b"k", 2, "ann")
    assert not order.may_take(b"k", 2, "bob")


def test_a_record_given_back_waits_until_later_ones_of_its_key_are_not_held() -> None:
    order = key_order(1, 2)
    order.take(b"k", 1, "ann")
    order.take(b"k", 2, "ann")
    order.give_back(b"k", 1)
    assert not order.may_take(b"k", 1, "ann")
    assert not order.may_take(b"k", 1, "bob")
    order.leave(b"k", 2)
    assert order.may_take(b"k", 1, "bob")


def test_a_lane_that_nobody_holds_offers_its_lowest() -> None:
    order = key_order(5, 3, 9, 3)
    assert order.free_head(b"k") == 3
    order.take(b"k", 3, "ann")
    assert order.free_head(b"k") is None
    order.leave(b"k", 3)
    assert order.free_head(b"k") == 5


def test_a_lane_without_records_is_forgotten() -> None:
    order = key_order(1)
    order.leave(b"k", 7)
    order.leave(b"k", 1)
    order.leave(b"k", 1)
    assert len(order) == 0
    assert order.may_take(b"k", 9, "ann")
