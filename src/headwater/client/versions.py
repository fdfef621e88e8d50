"""The APIs that are spoken here, in which versions, and which of them a broker is asked in.

A request is a message of one class in every version. The oldest version in the table is the first that says all that
the callers here rely on, or the first that Kafka 4 still serves.

For reading: records come in batches, a broker tells the last stable offset, and asking for a topic does not create it.
For writing: transactions go by the older protocol, in which a producer says itself which partitions it writes: every
broker with transactions understands it. What the newer one is for, an epoch for each transaction, is had by asking for
a new epoch before each.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from headwater.client.errors import NotServed
from headwater.model.errors import error_name
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.api_versions import ApiVersionsResponse

VersionRange: TypeAlias = tuple[int, int]

SPOKEN: Final[Mapping[int, VersionRange]] = {
    ApiKey.PRODUCE: (3, 11),
    ApiKey.FETCH: (4, 13),
    ApiKey.LIST_OFFSETS: (2, 7),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_FETCH: (7, 7),  # says when a transaction may still change the answer
    ApiKey.FIND_COORDINATOR: (1, 4),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.LIST_GROUPS: (5, 5),  # with the groups' types
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 3),
    ApiKey.END_TXN: (0, 3),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 3),
    ApiKey.DESCRIBE_ACLS: (1, 3),  # with prefixed patterns
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (4, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.DELETE_GROUPS: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (1, 1),
    ApiKey.DESCRIBE_CLUSTER: (2, 2),  # with the brokers that are gone
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (1, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (1, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (2, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (2, 2),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (1, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
}
FIRST_TOPIC_ID_FETCH: Final = 13


class BrokerVersions:
    """What one broker serves."""

    def __init__(self, response: ApiVersionsResponse) -> None:
        """Raises NotServed if the broker does not tell."""
        if response.error_code:
            raise NotServed(f"it refuses to say what it serves ({error_name(response.error_code)})")
        self._served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def newest(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak. Raises NotServed."""
        ours_least, ours_most = SPOKEN[api_key]
        theirs_least, theirs_most = self._served.get(api_key, (0, -1))
        newest = min(ours_most if at_most is None else at_most, theirs_most)
        if newest < max(ours_least, theirs_least):
            raise NotServed(f"it does not serve API {api_key} in a version that is known here")
        return newest
