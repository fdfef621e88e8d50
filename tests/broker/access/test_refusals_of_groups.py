"""A user who was granted nothing asks about groups, transactions and share groups, in every version: the refusal stands
where the API has declared it, and the response tells nothing else."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.dispatch import load_handlers
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import request_schema
from tests.broker.hostile_requests import error_codes, messages
from tests.support.effort import amount
from tests.support.guarded import Guarded, assert_hides
from tests.support.messages import nested, values_at

GROUP, TOPIC_NAME, ID, MEMBER = "a-group", "a-topic", "an-id", "a-member"
NO_GROUP, NO_TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ID, NO_CLUSTER = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SECRET = "private"
APIS = {entry.api.key: entry.api for entry in load_handlers().values()}

_producer: dict[str, Any] = {"transactional_id": ID, "producer_id": 1, "producer_epoch": 0}
_indexes = nested(name=TOPIC_NAME, partition_indexes=[0, 1])
_indexes_by_id = {**_indexes, "topic_id": uuid.uuid4()}
_offsets = nested(
    name=TOPIC_NAME,
    partitions=[nested(partition_index=0, committed_offset=1), nested(partition_index=1, committed_offset=1)],
)
_offsets_by_id = {**_offsets, "topic_id": uuid.uuid4()}
_partitions = [nested(name=TOPIC_NAME, partitions=[0, 1])]
_fetched = [nested(topic_id=uuid.uuid4(), partitions=[nested(partition_index=0)])]
_joining = {"member_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
_beating = {"member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 1_000, "topic_partitions": []}
_share = {"group_id": GROUP, "member_id": MEMBER, "share_session_epoch": 0}
ERROR = "error_code"
OF_PARTITIONS = "topics[].partitions[].error_code"

CASES: list[tuple[ApiKey, dict[str, Any], dict[range, str], ErrorCode]] = [
    (ApiKey.JOIN_GROUP, {"group_id": GROUP, **_joining}, {range(10): ERROR}, NO_GROUP),
    (ApiKey.SYNC_GROUP, {"group_id": GROUP, "member_id": MEMBER}, {range(6): ERROR}, NO_GROUP),
    (ApiKey.HEARTBEAT, {"group_id": GROUP, "member_id": MEMBER}, {range(5): ERROR}, NO_GROUP),
    (ApiKey.LEAVE_GROUP, {"group_id": GROUP, "member_id": MEMBER}, {range(6): ERROR}, NO_GROUP),
    (ApiKey.OFFSET_COMMIT, {"group_id": GROUP, "topics": [_offsets_by_id]}, {range(2, 11): OF_PARTITIONS}, NO_GROUP),
    (
        ApiKey.OFFSET_FETCH,
        {"group_id": GROUP, "topics": [_indexes], "groups": [nested(group_id=GROUP, topics=[_indexes_by_id])]},
        {range(1, 2): OF_PARTITIONS, range(2, 8): ERROR, range(8, 11): "groups[].error_code"},
        NO_GROUP,
    ),
    (
        ApiKey.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [nested(name=TOPIC_NAME, partitions=[nested(partition_index=0)])]},
        {range(1): ERROR},
        NO_GROUP,
    ),
    (
        ApiKey.FIND_COORDINATOR,
        {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP, "another"]},
        {range(4): ERROR, range(4, 7): "coordinators[].error_code"},
        NO_GROUP,
    ),
    (
        ApiKey.FIND_COORDINATOR,
        {"key": ID, "key_type": 1, "coordinator_keys": [ID, "another"]},
        {range(1, 4): ERROR, range(4, 7): "coordinators[].error_code"},
        NO_ID,
    ),
    (
        ApiKey.FIND_COORDINATOR,
        {"key_type": 2, "coordinator_keys": [f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0"]},
        {range(6, 7): "coordinators[].error_code"},
        NO_CLUSTER,
    ),
    (ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP, "another"]}, {range(7): "groups[].error_code"}, NO_GROUP),
    (ApiKey.DELETE_GROUPS, {"groups_names": [GROUP, "another"]}, {range(3): "results[].error_code"}, NO_GROUP),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, {"group_id": GROUP, **_beating}, {range(2): ERROR}, NO_GROUP),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [GROUP]}, {range(2): "groups[].error_code"}, NO_GROUP),
    (ApiKey.INIT_PRODUCER_ID, {"transactional_id": ID}, {range(6): ERROR}, NO_ID),
    (ApiKey.INIT_PRODUCER_ID, {"transactional_id": None}, {range(6): ERROR}, NO_CLUSTER),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": 1,
            "v3_and_below_topics": _partitions,
            "transactions": [nested(**_producer, topics=_partitions)],
        },
        {range(4): "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"},
        NO_ID,
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {"transactions": [nested(**_producer, topics=_partitions)]},
        {range(4, 6): ERROR},
        NO_CLUSTER,
    ),
    (ApiKey.ADD_OFFSETS_TO_TXN, {**_producer, "group_id": GROUP}, {range(5): ERROR}, NO_ID),
    (ApiKey.END_TXN, {**_producer, "committed": True}, {range(6): ERROR}, NO_ID),
    (
        ApiKey.TXN_OFFSET_COMMIT,
        {**_producer, "group_id": GROUP, "topics": [_offsets]},
        {range(6): OF_PARTITIONS},
        NO_ID,
    ),
    (
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [ID, "another"]},
        {range(1): "transaction_states[].error_code"},
        NO_ID,
    ),
    (ApiKey.SHARE_GROUP_HEARTBEAT, {"group_id": GROUP, "member_id": MEMBER}, {range(1, 2): ERROR}, NO_GROUP),
    (ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [GROUP]}, {range(1, 2): "groups[].error_code"}, NO_GROUP),
    (ApiKey.SHARE_FETCH, {**_share, "topics": _fetched}, {range(1, 3): ERROR}, NO_GROUP),
    (ApiKey.SHARE_ACKNOWLEDGE, {**_share, "topics": []}, {range(1, 3): ERROR}, NO_GROUP),
    (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [nested(group_id=GROUP, topics=None)]},
        {range(2): "groups[].error_code"},
        NO_GROUP,
    ),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, {"group_id": GROUP, "topics": []}, {range(1): ERROR}, NO_GROUP),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, {"group_id": GROUP, "topics": []}, {range(1): ERROR}, NO_GROUP),
]


@pytest.mark.parametrize(("key", "fields", "places", "code"), CASES, ids=lambda each: getattr(each, "name", ""))
def test_each_version_says_where_it_refuses(
    guarded: Guarded, key: ApiKey, fields: dict[str, Any], places: dict[range, str], code: ErrorCode
) -> None:
    with guarded.client() as client:
        for versions, place in places.items():
            for version in versions:
                codes = set(values_at(client.ask(key, version, **fields), place))
                assert codes == {code}, (version, place)


def test_no_version_of_these_apis_is_forgotten() -> None:
    for key in {key for key, *_ in CASES}:
        tried = {version for each, _, places, _ in CASES if each is key for versions in places for version in versions}
        assert tried == set(range(APIS[key].min_version, APIS[key].max_version + 1)), key


def test_lists_are_empty_and_no_error(guarded: Guarded) -> None:
    admin = guarded.admin
    name = f"{SECRET}-{uuid.uuid4().hex}"
    assert admin.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=1_000).error_code == 0
    offsets = [nested(name=SECRET, partitions=[nested(partition_index=0, committed_offset=1)])]
    guarded.create(SECRET)
    commit = admin.ask(ApiKey.OFFSET_COMMIT, 8, group_id=name, topics=offsets)
    assert set(values_at(commit, OF_PARTITIONS)) == {0}
    assert name in {each.group_id for each in admin.ask(ApiKey.LIST_GROUPS, 4).groups}
    assert name in {each.transactional_id for each in admin.ask(ApiKey.LIST_TRANSACTIONS, 0).transaction_states}, (
        "there is something to hide"
    )
    with guarded.client() as client:
        for version in range(6):
            groups = client.ask(ApiKey.LIST_GROUPS, version)
            assert (groups.error_code, list(groups.groups)) == (0, [])
            assert_hides(groups, SECRET)
        for version in range(3):
            transactions = client.ask(ApiKey.LIST_TRANSACTIONS, version)
            assert (transactions.error_code, list(transactions.transaction_states)) == (0, [])
            assert_hides(transactions, SECRET)


def test_a_request_that_names_no_group_is_refused_like_any_other(guarded: Guarded) -> None:
    with guarded.client() as client:
        for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            fields = {**_share, "group_id": None, "topics": []}
            assert client.ask(key, 1, **fields).error_code == NO_GROUP
            guarded.allow(Operation.READ, ResourceType.GROUP, "*")
            assert client.ask(key, 1, **fields).error_code == ErrorCode.INVALID_REQUEST
            guarded.forget_bindings()
        for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            assert client.ask(key, 3, transactional_id="").error_code == NO_ID


def test_whatever_a_user_without_rights_asks_is_refused_and_no_mistake(guarded: Guarded) -> None:
    allowed = {0, NO_GROUP, NO_TOPIC, NO_ID, NO_CLUSTER, ErrorCode.INVALID_REQUEST}

    @given(data=st.data(), key=st.sampled_from(sorted({key for key, *_ in CASES})))
    @settings(max_examples=amount(long=2_000, short=150), deadline=None)
    def nonsense(data: st.DataObject, key: ApiKey) -> None:
        version = data.draw(st.integers(APIS[key].min_version, APIS[key].max_version))
        fields = data.draw(messages(request_schema(key, version)))
        assert set(error_codes(client.ask(key, version, **fields))) <= allowed

    with guarded.client() as client:
        nonsense()
    groups = guarded.admin.ask(ApiKey.LIST_GROUPS, 4).groups
    assert all(each.group_id.startswith(SECRET) for each in groups), "no group came into being"
