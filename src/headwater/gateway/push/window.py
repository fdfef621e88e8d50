"""How many requests to a receiver may be under way: more while it takes them, fewer when it does not. No I/O, no clock.

It doubles until the first failure, and from then on grows by one for each round of successes, as TCP does. A failure
halves it once: failures of requests that were under way at the same time say nothing new.
"""

FIRST = 4


class Window:
    def __init__(self, most: int) -> None:
        assert most >= 1, "at least one request must be allowed"
        self._most = most
        self._size = float(min(FIRST, most))
        self._is_doubling = True
        self._round = 0
        """Goes up when the window shrinks."""
        self.in_flight = 0

    @property
    def size(self) -> int:
        return int(self._size)

    @property
    def room(self) -> int:
        return max(self.size - self.in_flight, 0)

    def began(self) -> int:
        """A request goes out. Returns what to pass to `succeeded` or `failed`."""
        self.in_flight += 1
        return self._round

    def succeeded(self, round_number: int) -> None:
        # A window that was not full has not shown that more would be taken.
        if self.in_flight >= self.size:
            self._size = min(self._size + (1.0 if self._is_doubling else 1.0 / self._size), float(self._most))
        self.in_flight -= 1

    def failed(self, round_number: int) -> None:
        self.in_flight -= 1
        self._is_doubling = False
        if round_number == self._round:
            self._size = max(self._size / 2, 1.0)
            self._round += 1

    def dropped(self) -> None:
        """It ended for a reason that is not the receiver's."""
        self.in_flight -= 1
