"""Entities of quotas: what they may be, which one counts, and which a filter describes, against models."""

import json
import math
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.metadata.limits import check_key
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import (
    UNLIMITED,
    EntityKind,
    MalformedQuota,
    MatchType,
    Metered,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    QuotaLimit,
    QuotaTable,
    altered_quotas,
    check_quota,
    quotas_from_json,
    quotas_to_json,
)

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
CONNECT = QuotaKey.CONNECTION_CREATION_RATE
Parts = dict[str, str | None]

client_parts = st.dictionaries(
    st.sampled_from(["user", "client-id"]), st.none() | st.sampled_from(["a", "b", "*"]), min_size=1
)
ip_parts = st.fixed_dictionaries({"ip": st.none() | st.sampled_from(["10.0.0.7", "::1"])})
entities = st.builds(lambda parts: QuotaEntity.of(parts.items()), client_parts | ip_parts)


def entity(**names: str | None) -> QuotaEntity:
    return QuotaEntity.of((kind.replace("_", "-"), name) for kind, name in names.items())


def table(*limits: tuple[QuotaEntity, float]) -> QuotaTable:
    return QuotaTable({each: {CONNECT if EntityKind.IP in each else PRODUCE: value} for each, value in limits})


PRECEDENCE: list[tuple[Parts, Metered]] = [
    ({"user": "alice", "client-id": "app"}, Metered("alice", "app")),
    ({"user": "alice", "client-id": None}, Metered("alice", "app")),
    ({"user": "alice"}, Metered("alice")),
    ({"user": None, "client-id": "app"}, Metered("alice", "app")),
    ({"user": None, "client-id": None}, Metered("alice", "app")),
    ({"user": None}, Metered("alice")),
    ({"client-id": "app"}, Metered(client_id="app")),
    ({"client-id": None}, Metered(client_id="app")),
]


@given(st.sets(st.sampled_from(range(len(PRECEDENCE)))))
def test_the_first_entity_of_the_precedence_counts(levels: set[int]) -> None:
    others: list[Parts] = [{"user": "bob"}, {"client-id": "other"}, {"user": "bob", "client-id": "app"}]
    limits = [*((parts, 1.0) for parts in others), *((PRECEDENCE[level][0], 100.0 + level) for level in levels)]
    quotas = table(*((QuotaEntity.of(parts.items()), value) for parts, value in limits))
    first = min(levels, default=None)
    expected = None if first is None else QuotaLimit(100.0 + first, PRECEDENCE[first][1])
    assert quotas.limit(PRODUCE, "alice", "app") == expected


def test_a_default_is_a_limit_for_each_name_and_not_for_all_together() -> None:
    quotas = table((entity(user=None), 5.0))
    assert quotas.limit(PRODUCE, "alice", "app") == QuotaLimit(5.0, Metered("alice"))
    assert quotas.limit(PRODUCE, "bob", "app") == QuotaLimit(5.0, Metered("bob"))


def test_each_key_has_a_precedence_of_its_own() -> None:
    quotas = QuotaTable({
        entity(user="alice"): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
        entity(client_id="app"): {PRODUCE: 2.0, QuotaKey.CONTROLLER_MUTATION_RATE: 0.5},
    })  # fmt: skip
    limits = quotas.limits("alice", "app")
    assert limits.consumer_byte_rate == QuotaLimit(1.0, Metered("alice"))
    assert limits.producer_byte_rate == QuotaLimit(2.0, Metered(client_id="app"))
    assert limits.controller_mutation_rate == QuotaLimit(0.5, Metered(client_id="app"))
    assert limits.request_percentage is None


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id_does_not_escape_the_defaults(client_id: str | None) -> None:
    alone, of_a_user = table((entity(client_id=None), 5.0)), table((entity(user=None, client_id=None), 5.0))
    assert alone.limit(PRODUCE, "alice", client_id) == QuotaLimit(5.0, Metered(client_id=""))
    assert of_a_user.limit(PRODUCE, "alice", client_id) == QuotaLimit(5.0, Metered("alice", ""))


def test_names_that_look_like_defaults_are_names() -> None:
    quotas = table((entity(user="*"), 1.0), (entity(user="<default>"), 2.0), (entity(user="None"), 3.0))
    assert quotas.limit(PRODUCE, "alice", "app") is None


def test_without_quotas_nothing_is_limited() -> None:
    assert QuotaTable().limits("alice", "app") is UNLIMITED
    assert QuotaTable().connection_limit("10.0.0.7") is None
    assert table((entity(ip=None), 5.0)).limits("alice", "app") is UNLIMITED


def test_an_address_has_its_own_limit_or_the_default() -> None:
    quotas = table((entity(ip="10.0.0.7"), 5.0), (entity(ip="2001:db8:0::1"), 6.0), (entity(ip=None), 7.0))
    assert quotas.connection_limit("::ffff:10.0.0.7") == QuotaLimit(5.0, Metered(ip="10.0.0.7"))
    assert quotas.connection_limit("2001:db8::1%eth0") == QuotaLimit(6.0, Metered(ip="2001:db8::1"))
    assert quotas.connection_limit("10.0.0.8") == QuotaLimit(7.0, Metered(ip="10.0.0.8"))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "a"), ("user", "b")],
        [("user", "")],
        [("client-id", "")],
        [("ip", "")],
        [("ip", "example.com")],
        [("ip", "10.0.0.7"), ("user", "a")],
        [("ip", None), ("client-id", None)],
        [("group", "g")],
        [("", "g")],
        [("user", "a" * 2_000)],
    ],
)
def test_what_is_no_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(RequestError) as refusal:
        QuotaEntity.of(parts)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", 1.5),
        ("consumer_byte_rate", 2.0**70),
        ("request_percentage", math.nan),
        ("request_percentage", math.inf),
        ("controller_mutation_rate", 0.0),
        ("connection_creation_rate", 5.0),
        ("unknown", 5.0),
    ],
)
def test_a_limit_that_a_client_cannot_have_is_refused(key: str, value: float) -> None:
    with pytest.raises(RequestError) as refusal:
        check_quota(entity(user="alice"), key, value)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert key in refusal.value.message


@pytest.mark.parametrize("value", [0.0, 0.5, 2.0**31, math.nan])
def test_a_limit_that_an_address_cannot_have_is_refused(value: float) -> None:
    with pytest.raises(RequestError):
        check_quota(entity(ip="10.0.0.7"), "connection_creation_rate", value)
    with pytest.raises(RequestError):
        check_quota(entity(ip="10.0.0.7"), "producer_byte_rate", 5.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("request_percentage", 0.01),
        ("controller_mutation_rate", 0.5),
        ("producer_byte_rate", 2.0**63),
        ("consumer_byte_rate", 1),
    ],
)
def test_a_limit_may_be_small_or_large(key: str, value: float) -> None:
    assert check_quota(entity(client_id=None), key, value) == key


def test_an_alteration_sets_and_removes() -> None:
    before = {PRODUCE: 5.0, QuotaKey.REQUEST_PERCENTAGE: 50.0}
    alterations = [("producer_byte_rate", None), ("consumer_byte_rate", 7.0), ("unknown", None)]
    assert altered_quotas(entity(user="alice"), before, alterations) == {
        QuotaKey.REQUEST_PERCENTAGE: 50.0,
        QuotaKey.CONSUMER_BYTE_RATE: 7.0,
    }


@pytest.mark.parametrize("second", [None, 6.0])
def test_a_key_is_not_altered_twice(second: float | None) -> None:
    with pytest.raises(RequestError, match="twice"):
        altered_quotas(entity(user="alice"), {}, [("producer_byte_rate", 5.0), ("producer_byte_rate", second)])


@given(entities, st.sampled_from([1.0, 1_048_576.0, 2.0**62]))
def test_what_is_stored_comes_back(each: QuotaEntity, value: float) -> None:
    values = {CONNECT: 5.0} if EntityKind.IP in each else {PRODUCE: value, QuotaKey.REQUEST_PERCENTAGE: 12.5}
    assert quotas_from_json(json.loads(json.dumps(quotas_to_json(each, values)))) == (each, values)


def test_the_stored_form_is_kept() -> None:
    record = {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": 1048576}}
    assert quotas_to_json(entity(client_id=None, user="alice"), {PRODUCE: 1048576.0}) == record


def test_a_key_of_a_newer_version_is_ignored() -> None:
    record = {"entity": {"user": "alice"}, "quotas": {"storage_bytes": 5, "producer_byte_rate": 7}, "more": 1}
    assert quotas_from_json(record) == (entity(user="alice"), {PRODUCE: 7.0})


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"entity": {}, "quotas": {}},
        {"entity": {"user": 5}, "quotas": {}},
        {"entity": {"user": {"entity": {}}}, "quotas": {"producer_byte_rate": 2}},
        {"entity": {"user": ["a"]}, "quotas": {"producer_byte_rate": 2}},
        {"entity": [], "quotas": {}},
        {"entity": {"tenant": "a"}, "quotas": {}},
        {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": "x"}},
        {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": None}},
        {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": -5}},
        {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": 10**400}},
        {"entity": {"user": "a"}, "quotas": 5},
    ],
)
def test_a_record_that_is_no_quota_is_told(record: object) -> None:
    with pytest.raises(MalformedQuota):
        quotas_from_json(record)


def test_keys_of_the_store_are_stable() -> None:
    assert entity(client_id="a/b c", user=None).key() == "user=*,client-id=a%2Fb%20c"
    assert entity(user="*").key() == "user=%2A"
    assert entity(ip="::FFFF:10.0.0.7").key() == "ip=10.0.0.7"
    long = entity(user="CN=" + "ü" * 400)
    assert long.key() == "sha256-e243217dca404e93aef9495e602c8df86c7afb449a16d52044881f78edd4c8db"


@given(st.text(min_size=1, max_size=300), st.none() | st.text(min_size=1, max_size=300))
def test_the_metadata_store_takes_every_key(user: str, client_id: str | None) -> None:
    check_key("quota/" + QuotaEntity.of([("client-id", client_id), ("user", user)]).key())


@given(entities, entities)
def test_entities_are_equal_where_their_keys_are(one: QuotaEntity, other: QuotaEntity) -> None:
    assert (one == other) == (one.key() == other.key())


components = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["user", "client-id", "ip"]), st.just(0), st.sampled_from(["a", "b", "10.0.0.7"])),
        st.tuples(st.sampled_from(["user", "client-id", "ip"]), st.sampled_from([1, 2]), st.none()),
    ),
    max_size=2,
    unique_by=lambda component: component[0],
).filter(lambda chosen: len(chosen) < 2 or all(kind != "ip" for kind, _, _ in chosen))


@given(components, st.booleans(), st.sets(entities, max_size=12))
def test_a_filter_describes_what_the_model_says(
    chosen: list[tuple[str, int, str | None]], is_strict: bool, known: set[QuotaEntity]
) -> None:
    quotas = table(*((each, 5.0) for each in known))
    described = [each for each, _ in quotas.describe(QuotaFilter.of(chosen, is_strict))]
    assert len(described) == len(set(described))
    assert set(described) == {each for each in known if is_described(dict(each.parts), chosen, is_strict)}


def is_described(
    names: dict[EntityKind, str | None], chosen: Iterable[tuple[str, int, str | None]], is_strict: bool
) -> bool:
    wanted = {kind for kind, _, _ in chosen}
    if is_strict and names.keys() != wanted:
        return False
    for kind, match_type, match in chosen:
        named = {str(each): name for each, name in names.items()}
        if kind not in named or (match_type != MatchType.SPECIFIED and named[kind] != match):
            return False
    return True


def test_a_description_has_an_order_and_the_values() -> None:
    known = [entity(user=user, client_id=client) for user, client in product(["b", None, "a"], ["x", None])]
    quotas = table(*((each, float(number)) for number, each in enumerate(known, 1)))
    described = quotas.describe(QuotaFilter.of([], False))
    assert [each.key() for each, _ in described] == sorted(each.key() for each in known)
    assert dict(described)[known[0]] == {PRODUCE: 1.0}


def test_a_filter_finds_an_address_however_it_is_written() -> None:
    quotas = table((entity(ip="2001:db8::1"), 5.0))
    assert len(quotas.describe(QuotaFilter.of([("ip", 0, "2001:DB8:0:0::1")], True))) == 1


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("client-id", 0, "a"), ("ip", 1, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(chosen: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(RequestError) as refusal:
        QuotaFilter.of(chosen, False)
    assert refusal.value.code is code


def test_the_limit_of_what_is_measured_is_the_one_that_it_is_measured_against() -> None:
    key = QuotaKey.PRODUCER_BYTE_RATE
    table = QuotaTable(
        {
            QuotaEntity.of([("user", "alice"), ("client-id", None)]): {key: 1.0},
            QuotaEntity.of([("user", "alice")]): {key: 2.0},
            QuotaEntity.of([("user", None)]): {key: 3.0},
            QuotaEntity.of([("client-id", "app")]): {key: 4.0},
            QuotaEntity.of([("ip", None)]): {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
        }
    )

    def value(key: QuotaKey, metered: Metered) -> float | None:
        limit = table.limit_of(key, metered)
        return limit.value if limit is not None and limit.metered == metered else None

    assert value(key, Metered("alice", "app")) == 1.0
    assert value(key, Metered("alice")) == 2.0
    assert value(key, Metered("bob")) == 3.0
    assert value(key, Metered("bob", "app")) is None
    assert value(key, Metered(client_id="app")) == 4.0
    assert value(key, Metered(client_id="other")) is None
    assert value(QuotaKey.CONSUMER_BYTE_RATE, Metered("alice")) is None
    assert value(QuotaKey.CONNECTION_CREATION_RATE, Metered(ip="10.0.0.7")) == 5.0
