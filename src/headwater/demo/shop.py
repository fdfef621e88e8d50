"""A shop that does not exist: people look, fill carts and order, and a few do what they should not.

One seed gives the same events for ever. The shop reads no clock: the caller says up to when.
"""

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

CLICKS, ORDERS = "shop.clicks", "shop.orders"

PRODUCTS = {
    "kettle": 3990, "lamp": 2450, "teapot": 1890, "notebook": 650, "pencil": 190, "rucksack": 7900, "bottle": 1550,
    "blanket": 4500, "headphones": 12900, "keyboard": 8900, "chair": 19900, "desk": 34900, "plant": 1290, "mug": 890,
    "umbrella": 2190, "radio": 5990, "watch": 24900, "candle": 790, "puzzle": 1690, "camera": 54900,
}  # fmt: skip
"""Prices in cents, the most popular first."""
COUNTRIES = ("DE", "FR", "NL", "PL", "ES", "SE")

VIEWS_MAX = 6
GOES_ON_TO = {"cart": 0.45, "checkout": 0.65, "order": 0.75}
"""The share of sessions at a step that takes the next one."""
PAUSE_MS = 2_500
"""Between two clicks, on average."""
BROKEN_SHARE = 0.002
"""Of clicks: the browser sent something else."""
NO_ADDRESS_SHARE = 0.01
"""Of orders: they have no address to send anything to."""
STOLEN_SHARE = 0.03
"""Of ordering sessions: one of a few stolen cards goes round the world."""
STOLEN_CARDS = ("card-900001", "card-900002", "card-900003")


@dataclass(frozen=True, slots=True, order=True)
class Event:
    at_ms: int
    number: int
    topic: str
    key: str
    value: bytes


class Shop:
    """`sessions_per_s` people come each second, from `start_ms` on. Memory holds what was begun and not asked for."""

    def __init__(self, seed: int, start_ms: int, sessions_per_s: float = 20.0) -> None:
        self._random = random.Random(seed)
        self._next_session_ms = float(start_ms)
        self._sessions_per_s = sessions_per_s
        self._sessions = self._events = self._orders = 0
        self._to_come: list[Event] = []

    def until(self, at_ms: int) -> Iterator[Event]:
        """What happens up to then and was not reported yet, in the order of time."""
        while self._next_session_ms <= at_ms:
            self._visit(int(self._next_session_ms))
            self._next_session_ms += self._random.expovariate(self._sessions_per_s) * 1000
        while self._to_come and self._to_come[0].at_ms <= at_ms:
            yield heapq.heappop(self._to_come)

    def _visit(self, at_ms: int) -> None:
        self._sessions += 1
        session = f"s-{self._sessions:07d}"
        seen: list[str] = []
        for _ in range(self._random.randint(1, VIEWS_MAX)):
            seen.append(self._product())
            self._click(at_ms, session, "view", seen[-1])
            at_ms = self._later(at_ms)
        for action in ("cart", "checkout", "order"):
            if self._random.random() >= GOES_ON_TO[action]:
                return
            self._click(at_ms, session, action, seen[-1])
            if action == "order":
                self._order(at_ms, session, seen)
            at_ms = self._later(at_ms)

    def _click(self, at_ms: int, session: str, action: str, product: str) -> None:
        click = {"at": iso(at_ms), "session": session, "action": action, "product": product}
        if self._random.random() < BROKEN_SHARE:
            self._put(at_ms, CLICKS, session, json.dumps(click).encode()[:-9])
        else:
            self._put(at_ms, CLICKS, session, json.dumps(click).encode())

    def _order(self, at_ms: int, session: str, seen: list[str]) -> None:
        self._orders += 1
        is_stolen = self._random.random() < STOLEN_SHARE
        items = [self._item(product) for product in sorted(set(seen[-3:]))]
        cents = sum(item["quantity"] * PRODUCTS[item["product"]] for item in items)
        has_address = self._random.random() >= NO_ADDRESS_SHARE
        order = {
            "id": f"o-{self._orders:07d}",
            "at": iso(at_ms),
            "session": session,
            "card": self._random.choice(STOLEN_CARDS) if is_stolen else f"card-{self._random.randrange(100_000):06d}",
            "country": self._random.choice(COUNTRIES) if is_stolen else self._random.choice(COUNTRIES[:2]),
            "address": f"{self._random.randint(1, 99)} Mill Lane" if has_address else None,
            "items": items,
            "total": cents / 100,
        }
        self._put(at_ms, ORDERS, str(order["id"]), json.dumps(order).encode())

    def _item(self, product: str) -> dict[str, Any]:
        quantity = 1 if self._random.random() < 0.8 else self._random.randint(2, 4)
        return {"product": product, "quantity": quantity, "price": PRODUCTS[product] / 100}

    def _product(self) -> str:
        """A few sell well and many now and then: the share falls with the rank."""
        names = list(PRODUCTS)
        return self._random.choices(names, [1 / rank for rank in range(1, len(names) + 1)])[0]

    def _later(self, at_ms: int) -> int:
        return at_ms + 200 + int(self._random.expovariate(1 / PAUSE_MS))

    def _put(self, at_ms: int, topic: str, key: str, value: bytes) -> None:
        self._events += 1
        heapq.heappush(self._to_come, Event(at_ms, self._events, topic, key, value))


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
