"""From which connection each producer of the older protocol was heard last: what comes from an earlier one is late.

In version 1 all transactions of a producer have one epoch. A client that gives a connection up repeats its EndTxn on a
new one, goes on, and begins the next transaction. If the request that it gave up on arrives then, it looks like the end
of that next transaction, and half of it is committed: a torn transaction. Version 2 has an epoch for each transaction
against that. Here, a connection that the producer has left behind is not listened to any more.

Only in memory: connections end with the process, and so does whatever was late in them. They outlive a shard that is
dropped and replayed, so the shard in its place is given what was known.
"""

from headwater.transactions.transaction import ProducerIdentity


class Connections:
    def __init__(self) -> None:
        self._newest: dict[str, tuple[ProducerIdentity, int]] = {}

    def heard(self, transactional_id: str, producer: ProducerIdentity, connection: int) -> bool:
        """A request came from there; whether it may count. A connection without a number always may."""
        if connection == 0:
            return True
        known, newest = self._newest.get(transactional_id, (producer, 0))
        if known == producer and connection < newest:
            return False
        self._newest[transactional_id] = (producer, connection)
        return True

    def forget(self, transactional_id: str) -> None:
        self._newest.pop(transactional_id, None)
