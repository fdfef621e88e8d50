"""When memory that TLS connections have left is given back."""

from headwater.transport.freed_memory import INTERVAL_S, MANY_CONNECTIONS, FreedMemory


def gone(memory: FreedMemory, connections: int) -> None:
    for _ in range(connections):
        memory.left_by_connection()


def test_it_is_given_back_after_many_connections_and_not_for_each() -> None:
    memory = FreedMemory()
    gone(memory, MANY_CONNECTIONS - 1)
    assert not memory.is_worth_it(0)
    gone(memory, 1)
    assert memory.is_worth_it(0)
    assert not memory.is_worth_it(INTERVAL_S), "nothing was freed since"
    memory.give_back()


def test_it_is_given_back_now_and_then_however_many_there_are() -> None:
    memory, times = FreedMemory(), 0
    for second in range(100):
        gone(memory, MANY_CONNECTIONS)
        times += memory.is_worth_it(second)
    assert times == 100 / INTERVAL_S
