"""Turns acknowledgements from stores into one number: the high watermark.

Every replica of the open segment must hold an offset before a reader may see it. Acknowledgements are cumulative
and may arrive in any order and more than once; the watermark never goes back. While it is frozen (a roll is under way)
it stands still, whatever arrives.
"""

from collections.abc import Iterable

from headwater.model.ids import Offset, StoreId


class AckTracker:
    def __init__(self, replicas: Iterable[StoreId], start: Offset) -> None:
        """`start` is committed already: all of `replicas` hold everything below it."""
        self._acked = dict.fromkeys(replicas, start)
        assert self._acked, "an open segment has at least one replica"
        self.high_watermark = start
        self._is_frozen = False

    def acknowledged(self, store: StoreId, end: Offset) -> bool:
        """Record that a store holds everything below `end`; say whether the high watermark moved.

        Unknown stores are ignored: they may be members of an earlier segment that answer late."""
        if end <= self._acked.get(store, end):
            return False
        self._acked[store] = end
        return self._advance()

    def acked(self, store: StoreId) -> Offset:
        return self._acked[store]

    @property
    def first(self) -> Offset:
        """At least one store holds everything below."""
        return max(self._acked.values())

    def freeze(self) -> Offset:
        self._is_frozen = True
        return self.high_watermark

    def unfreeze(self) -> bool:
        self._is_frozen = False
        return self._advance()

    def behind(self, offset: Offset) -> list[StoreId]:
        """Which stores have not acknowledged everything below `offset`."""
        return [store for store, end in self._acked.items() if end < offset]

    def _advance(self) -> bool:
        committed = min(self._acked.values())
        if self._is_frozen or committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True
