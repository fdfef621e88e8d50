import weakref

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.deadlines import Deadlines


def take_all(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    taken = []
    while (key := deadlines.take_due(now_ms)) is not None:
        taken.append(key)
    return taken


def test_deadlines_come_due_in_their_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("b", 20)
    deadlines.set("a", 10)
    assert deadlines.next_ms() == 10
    assert take_all(deadlines, 9) == []
    assert take_all(deadlines, 20) == ["a", "b"]
    assert deadlines.next_ms() is None


def test_a_postponed_deadline_is_not_due_at_its_old_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    assert take_all(deadlines, 29) == []
    assert take_all(deadlines, 30) == ["a"]


def test_a_deadline_may_move_earlier() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 30)
    deadlines.set("a", 10)
    assert deadlines.next_ms() == 10
    assert take_all(deadlines, 100) == ["a"]


def test_a_cleared_deadline_never_comes() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.clear("a")
    deadlines.clear("never set")
    assert deadlines.next_ms() is None and take_all(deadlines, 100) == []


def test_setting_and_clearing_forever_keeps_the_heap_small() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(10_000):
        deadlines.set(key, key)
        deadlines.clear(key)
    for at_ms in range(10_000, 0, -1):
        deadlines.set(0, at_ms)
    assert len(deadlines._heap) < 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 50), st.integers(0, 10))))
def test_deadlines_agree_with_a_dictionary(moves: list[tuple[str, int | None, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now_ms = 0
    for key, at_ms, passing_ms in moves:
        if at_ms is None:
            deadlines.clear(key)
            model.pop(key, None)
        else:
            deadlines.set(key, at_ms)
            model[key] = at_ms
        earliest = min(model.values(), default=None)
        next_ms = deadlines.next_ms()
        assert (next_ms is None) == (earliest is None)
        assert next_ms is None or earliest is None or next_ms <= earliest
        now_ms += passing_ms
        due = {each for each, deadline_ms in model.items() if deadline_ms <= now_ms}
        assert set(take_all(deadlines, now_ms)) == due
        model = {each: deadline_ms for each, deadline_ms in model.items() if each not in due}


def test_a_key_that_was_cleared_is_not_kept_alive() -> None:
    class Key:
        pass

    deadlines: Deadlines[Key] = Deadlines()
    key = Key()
    gone = weakref.ref(key)
    deadlines.set(key, 1_000)
    deadlines.set(key, 500)
    deadlines.clear(key)
    del key
    assert gone() is None
