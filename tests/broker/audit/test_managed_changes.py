"""What requests of administrators are told to have changed: of what succeeded, and without values."""

from typing import Any, TypeAlias

import pytest

from headwater.broker.audit.management import MANAGED
from headwater.wire.api_keys import ApiKey
from headwater.wire.message_classes import request_class, response_class
from tests.support.messages import build, nested

FAILED = 7
Told: TypeAlias = list[tuple[str, str, str, tuple[str, ...]]]


def told(api_key: ApiKey, request: dict[str, Any], response: dict[str, Any]) -> Told:
    changes = MANAGED[api_key](build(request_class(api_key), **request), build(response_class(api_key), **response))
    return [(each.operation, each.resource_type, each.name, each.changes) for each in changes]


def parts(*failed: int) -> list[dict[str, Any]]:
    """The results of partitions 0 and 1."""
    return [nested(partition_index=index, error_code=FAILED if index in failed else 0) for index in (0, 1)]


USER = [nested(entity_type="user", entity_name="alice"), nested(entity_type="client-id", entity_name=None)]
MOVED = [nested(partition_index=0, replicas=[2, 3]), nested(partition_index=1, replicas=None)]
MARKER = nested(
    producer_id=9, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
    topics=[nested(name="t", partition_indexes=[0, 1])],
)  # fmt: skip
CASES: list[tuple[ApiKey, dict[str, Any], dict[str, Any], Told]] = [
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [nested(entity=USER, ops=[
            nested(key="producer_byte_rate", value=1e6), nested(key="request_percentage", remove=True)
        ])]},
        {"entries": [nested(entity=USER, error_code=0)]},
        [("alter-quota", "quota", "client-id default, user alice",
          ("set producer_byte_rate=1e+06", "delete request_percentage"))],
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [nested(entity=USER, ops=[])], "validate_only": True},
        {"entries": [nested(entity=USER, error_code=0)]},
        [],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": [nested(name="t", partitions=MOVED)]},
        {"responses": [nested(name="t", partitions=parts())]},
        [("reassign", "topic", "t", ("0 to [2, 3]", "1 cancelled"))],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": [nested(name="t", partitions=MOVED)]},
        {"responses": [nested(name="t", partitions=parts(0))]},
        [("reassign", "topic", "t", ("1 cancelled",))],
    ),
    (
        ApiKey.ELECT_LEADERS,
        {},
        {"replica_election_results": [nested(topic="t", partition_result=[
            nested(partition_id=0), nested(partition_id=1, error_code=FAILED)
        ])]},
        [("elect-leaders", "topic", "t", ("0",))],
    ),
    (
        ApiKey.WRITE_TXN_MARKERS,
        {"markers": [MARKER]},
        {"markers": [nested(producer_id=9, topics=[nested(name="t", partitions=parts(1))])]},
        [("end-transaction", "topic", "t", ("abort of producer 9 in t 0",))],
    ),
    (
        ApiKey.UNREGISTER_BROKER,
        {"broker_id": 3},
        {"error_code": 0},
        [("unregister-node", "cluster", "kafka-cluster", ("3",))],
    ),
    (ApiKey.UNREGISTER_BROKER, {"broker_id": 3}, {"error_code": FAILED}, []),
    (
        ApiKey.OFFSET_DELETE,
        {"group_id": "g"},
        {"topics": [nested(name="t", partitions=parts(0))]},
        [("delete-offsets", "group", "g", ("t 1",))],
    ),
    (
        ApiKey.OFFSET_DELETE,
        {"group_id": "g"},
        {"topics": [nested(name="t", partitions=parts(0, 1))]},
        [],
    ),
    (
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        {"group_id": "q"},
        {"responses": [nested(topic_name="t", partitions=parts())]},
        [("alter-offsets", "group", "q", ("t 0", "t 1"))],
    ),
    (
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        {"group_id": "q"},
        {"responses": [nested(topic_name="t"), nested(topic_name="u", error_code=FAILED)]},
        [("delete-offsets", "group", "q", ("t",))],
    ),
    (
        ApiKey.OFFSET_COMMIT,
        {"group_id": "g"},
        {"topics": [nested(name="t", partitions=parts())]},
        [("alter-offsets", "group", "g", ("t 0", "t 1"))],
    ),
    (
        ApiKey.OFFSET_COMMIT,
        {"group_id": "g", "member_id": "m", "generation_id_or_member_epoch": 1},
        {"topics": [nested(name="t", partitions=parts())]},
        [],
    ),
    (
        ApiKey.ALTER_CONFIGS,
        {"resources": [nested(resource_type=4, resource_name="1", configs=[nested(name="a", value="secret")])]},
        {"responses": [nested(resource_type=4, resource_name="1")]},
        [("alter-configs", "broker", "1", ("set a",))],
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {"resources": [nested(resource_type=2, resource_name="t", configs=[
            nested(name="a", config_operation=1), nested(name="b", config_operation=2, value="secret")
        ])]},
        {"responses": [nested(resource_type=2, resource_name="t")]},
        [("alter-configs", "topic", "t", ("delete a", "append b"))],
    ),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [nested(name="alice", mechanism=1)], "upsertions": [nested(name="alice", mechanism=2)]},
        {"results": [nested(user="alice"), nested(user="bob", error_code=FAILED)]},
        [("alter-user", "user", "alice", ("delete SCRAM-SHA-256", "set SCRAM-SHA-512"))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("api_key", "request_fields", "response_fields", "changes"), CASES)
def test_what_succeeded_is_told(
    api_key: ApiKey,
    request_fields: dict[str, Any],
    response_fields: dict[str, Any],
    changes: Told,
) -> None:
    assert told(api_key, request_fields, response_fields) == changes
