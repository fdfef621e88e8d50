"""Connections that may be given up: those whose clients have not shown yet that they are clients, because TLS is not
done, or the login.

Where there is no room for a new connection, one of them is closed rather than the new one refused. The oldest goes: a
client that knows what it wants is through in a moment, and is not the oldest for long. It is one of the address of the
new connection, if that has more than its share of them, so that a flood from a few addresses closes its own.
"""

from collections.abc import Callable
from typing import Final


class Strangers:
    def __init__(self) -> None:
        self._hosts: Final[dict[object, str]] = {}
        """In the order in which they came."""
        self._by_host: Final[dict[str, dict[object, Callable[[], object]]]] = {}
        """How each is closed, in that order, too."""

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, stranger: object, host: str, close: Callable[[], object]) -> None:
        self._hosts[stranger] = host
        self._by_host.setdefault(host, {})[stranger] = close

    def discard(self, stranger: object) -> None:
        """It is a client now, or gone."""
        host = self._hosts.pop(stranger, None)
        if host is not None:
            of_host = self._by_host[host]
            del of_host[stranger]
            if not of_host:
                del self._by_host[host]

    def close_one_for(self, host: str) -> bool:
        """Make room for a connection of this address. False if there is no stranger."""
        if not self._hosts:
            return False
        share = len(self._hosts) / len(self._by_host)
        has_more = len(self._by_host.get(host, ())) > share
        return self.close_one_of(host if has_more else self._hosts[next(iter(self._hosts))])

    def close_one_of(self, host: str) -> bool:
        """The oldest of this address. False if there is none."""
        of_host = self._by_host.get(host)
        if not of_host:
            return False
        oldest, close = next(iter(of_host.items()))
        self.discard(oldest)
        close()
        return True
