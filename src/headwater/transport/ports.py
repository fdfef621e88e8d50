"""Ports of this machine for servers that are stopped and come back to the same one.

A port that the system chooses is from the range out of which it also serves outgoing connections: while the server is
down, any client of any program may be given it. So these are drawn from below that range.
"""

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 10_000
CLIENTS_FROM = 32_768
"""Where Linux has the ports of outgoing connections begin, unless configured otherwise."""
MAX_TRIES = 1_000

_dice = random.SystemRandom()
"""Not the generator that tests seed: two processes with one seed would draw the same ports."""
_CLIENT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    with ExitStack() as held:
        return [_draw(1, held) for _ in range(count)]


def free_ports_in_a_row(count: int) -> int:
    """The first of `count` free ports with consecutive numbers."""
    with ExitStack() as held:
        return _draw(count, held)


def is_free(port: int) -> bool:
    try:
        _listener(port).close()
    except (OSError, OverflowError):
        return False
    return True


def _draw(count: int, held: ExitStack) -> int:
    """The first of `count` free ports in a row; they stay taken until `held` is closed."""
    beyond = max(_clients_from() - count, LOWEST + count)
    for _ in range(MAX_TRIES):
        first = _dice.randrange(LOWEST, beyond)
        with ExitStack() as trial, suppress(OSError):
            for port in range(first, first + count):
                trial.enter_context(_listener(port))
            held.push(trial.pop_all())
            return first
    raise OSError(f"No {count} free ports on {HOST} were found in {MAX_TRIES} tries.")


def _listener(port: int) -> socket.socket:
    """Bind as servers do, so that connections that have just ended do not keep a port busy."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _clients_from() -> int:
    try:
        first = int(_CLIENT_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return CLIENTS_FROM
    return first if first > 2 * LOWEST else CLIENTS_FROM
