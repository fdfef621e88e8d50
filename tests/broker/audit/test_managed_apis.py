"""What the audit says of each API: every one that changes something for administrators is told, or is here."""

from headwater.broker.audit.management import MANAGED
from headwater.broker.dispatch import load_handlers
from headwater.wire.api_keys import ApiKey

LOGINS = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Have events of their own."""
RECORDS = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
OF_PROGRAMS = {
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN,
}  # fmt: skip
"""Members and producers at their work."""
QUESTIONS = {
    ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
}  # fmt: skip
"""Change nothing, but that Metadata may create a topic, which is told where that is done."""
WITHOUT_EFFECT = {ApiKey.ALTER_REPLICA_LOG_DIRS}
"""A node has one directory."""


def test_no_api_that_changes_something_is_forgotten() -> None:
    others = LOGINS | RECORDS | OF_PROGRAMS | QUESTIONS | WITHOUT_EFFECT
    assert MANAGED.keys() & others == set()
    assert load_handlers().keys() - MANAGED.keys() - others == set()


def test_the_audit_looks_at_no_request_for_records() -> None:
    """Their handlers read frames, which the dispatcher does not show to the audit."""
    entries = load_handlers()
    framed = {key for key, entry in entries.items() if entry.handle_frame is not None}
    assert {ApiKey.PRODUCE, ApiKey.FETCH} <= framed and framed & MANAGED.keys() == set()
