from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.hosts import host_of
from headwater.security.principal import Principal
from headwater.security.verdict_cache import MAX_KEPT_NAME_CHARS, VerdictCache
from tests.security.acl_bindings import ALICE, BOB, HERE, Question, binding, index_of, question_lists, some_bindings
from tests.support.effort import amount

READ, T = Operation.READ, ResourceType.TOPIC

changes = st.lists(st.tuples(st.booleans(), st.lists(some_bindings, min_size=1, max_size=5)), max_size=8)


@given(changes, question_lists, st.sampled_from([ALICE, BOB]), st.sampled_from([1, 7, 1_000]), st.booleans())
@settings(max_examples=amount(200, 50))
def test_a_cache_says_what_the_index_of_the_moment_says(
    changes: Sequence[tuple[bool, list[AclBinding]]],
    questions: Sequence[Question],
    principal: Principal,
    max_verdicts: int,
    everyone: bool,
) -> None:
    index, host = index_of(everyone=everyone), host_of(HERE)
    cache = VerdictCache(principal, host, max_verdicts)
    for is_added, bindings in [(True, []), *changes]:
        index = index.with_changes(added=bindings) if is_added else index.with_changes(removed=bindings)
        for each in [*questions, *questions[:5]]:
            kind = (each.operation, each.resource_type)
            assert cache.authorize(index, *kind, each.name) is index.authorize(principal, host, *kind, each.name)
            assert cache.authorize_by_type(index, *kind) is index.authorize_by_type(principal, host, *kind)
            assert len(cache) <= max_verdicts


def test_a_verdict_does_not_outlive_the_binding_it_came_from() -> None:
    cache = VerdictCache(ALICE, host_of(HERE))
    index = index_of(binding())
    assert cache.authorize(index, READ, T, "orders")
    assert cache.authorize_by_type(index, READ, T)
    index = index.with_changes(removed=[binding()])
    assert not cache.authorize(index, READ, T, "orders")
    assert not cache.authorize_by_type(index, READ, T)


def test_a_question_by_type_is_none_about_a_name() -> None:
    cache = VerdictCache(ALICE, host_of(HERE))
    index = index_of(binding())
    assert not cache.authorize(index, READ, T, "None")
    assert not cache.authorize(index, READ, T, "")
    assert cache.authorize_by_type(index, READ, T)
    assert not cache.authorize(index, READ, T, "None")


def test_long_names_take_no_room() -> None:
    cache = VerdictCache(ALICE, host_of(HERE))
    index = index_of(binding(name="x", prefixed=True))
    assert cache.authorize(index, READ, T, "x" * MAX_KEPT_NAME_CHARS)
    assert len(cache) == 1
    assert cache.authorize(index, READ, T, "x" * (MAX_KEPT_NAME_CHARS + 1))
    assert len(cache) == 1


def test_a_verdict_is_kept_as_long_as_the_version_is_the_same() -> None:
    cache = VerdictCache(ALICE, host_of(HERE))
    index, impostor = index_of(binding()), index_of()
    assert index.version == impostor.version
    for each in (index, impostor):
        assert cache.authorize(each, READ, T, "orders")
        assert cache.authorize_by_type(each, READ, T)
    assert len(cache) == 2
