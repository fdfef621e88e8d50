"""The APIs that are spoken here, and in which versions.

For reading: from the oldest version on, records come in batches, a broker tells the last stable offset, and a topic is
not created by asking for it.

For writing: transactions go by the older protocol, in which a producer says itself which partitions it writes: every
broker with transactions understands it. What the newer one is for, an epoch for each transaction, is had by asking for
a new epoch before each.
"""

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

SUPPORTED: Final = {
    PRODUCE: (3, 11),
    FETCH: (4, 13),
    LIST_OFFSETS: (2, 7),
    METADATA: (4, 12),
    OFFSET_FETCH: (7, 7),  # says when a transaction may still change the answer
    FIND_COORDINATOR: (1, 3),
    INIT_PRODUCER_ID: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 3),
    END_TXN: (0, 3),
    TXN_OFFSET_COMMIT: (0, 3),
}
FIRST_TOPIC_ID_FETCH: Final = 13
