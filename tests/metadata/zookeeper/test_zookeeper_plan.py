"""From the contract's transactions to ZooKeeper's, without a ZooKeeper."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from headwater.metadata.limits import check_key
from headwater.metadata.store import Condition, Del, Has, Is, Operation, Put
from headwater.metadata.zookeeper.paths import ZookeeperPaths, is_folder, is_key, parent
from headwater.metadata.zookeeper.plan import (
    ANY_VERSION,
    NO_OWNER,
    Action,
    Check,
    CreateNode,
    Delete,
    Seen,
    SetData,
    Step,
    Verdict,
    Writer,
    judge,
    keys_to_read,
    plan,
)
from headwater.metadata.zookeeper.session import ZookeeperSession

PATHS = ZookeeperPaths("/hw")
A = "/hw/keys/a="
THERE = Seen(version=70, data_version=3, owner=NO_OWNER)
OURS = Writer(owner=9, mark="/hw/sessions/x")
SESSION = ZookeeperSession.__new__(ZookeeperSession)
"""A plan only looks whether there is one."""


def actions(
    conditions: list[Condition],
    operations: list[Operation],
    seen: dict[str, Seen] | None = None,
    writer: Writer | None = None,
) -> list[Action] | None:
    steps = plan(PATHS, conditions, operations, seen or {}, writer)
    return [step.action for step in steps] if steps is not None else None


parts = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/"), min_size=1, max_size=6)
keys = st.lists(parts.filter(lambda part: part not in (".", "..")), min_size=1, max_size=5).map("/".join)


@given(keys, keys)
def test_each_key_has_a_node_of_its_own_and_is_found_again(one: str, other: str) -> None:
    check_key(one)
    assert PATHS.key(PATHS.node(one)) == one
    assert (PATHS.node(one) == PATHS.node(other)) == (one == other)
    assert is_key(PATHS.node(one)) and not is_folder(PATHS.node(one))


@given(keys, keys)
def test_a_node_lies_below_the_folder_of_each_of_its_prefixes_and_no_node_is_a_folder(one: str, other: str) -> None:
    folder = PATHS.folder(f"{one}/")
    assert is_folder(folder)
    assert parent(PATHS.node(f"{one}/x")) == folder
    assert PATHS.node(f"{one}/{other}").startswith(f"{folder}/")
    assert PATHS.node(other) != folder


def test_a_put_creates_what_is_absent_and_sets_what_is_there() -> None:
    assert actions([], [Put("a", b"v")]) == [CreateNode(A, b"", False), SetData(A, b"v", 0)]
    assert actions([], [Put("a", b"v")], {"a": THERE}) == [SetData(A, b"v", 3)]


def test_a_put_for_another_owner_makes_a_new_node() -> None:
    into = actions([], [Put("a", b"v", SESSION)], {"a": THERE}, OURS)
    assert into == [Check(OURS.mark, ANY_VERSION), Delete(A, 3), CreateNode(A, b"", True), SetData(A, b"v", 0)]
    out_of = actions([], [Put("a", b"v")], {"a": Seen(70, 3, owner=9)})
    assert out_of == [Delete(A, 3), CreateNode(A, b"", False), SetData(A, b"v", 0)]
    kept = actions([], [Put("a", b"v", SESSION)], {"a": Seen(70, 3, owner=9)}, OURS)
    assert kept == [Check(OURS.mark, ANY_VERSION), SetData(A, b"v", 3)]


def test_a_deletion_of_what_is_absent_makes_sure_that_it_is() -> None:
    assert actions([], [Del("a")], {"a": THERE}) == [Delete(A, 3)]
    assert actions([], [Del("a")]) == [CreateNode(A, b"", False), Delete(A, ANY_VERSION)]


def test_conditions_on_keys_that_are_not_written_are_checked() -> None:
    assert actions([Has("a")], []) == [Check(A, ANY_VERSION)]
    assert actions([Is("a", 70)], [], {"a": THERE}) == [Check(A, 3)]
    assert actions([Is("a", 0)], []) == [CreateNode(A, b"", False), Delete(A, ANY_VERSION)]


def test_a_condition_on_a_key_that_is_written_is_checked_by_the_write() -> None:
    assert actions([Is("a", 70)], [Put("a", b"v")], {"a": THERE}) == [SetData(A, b"v", 3)]
    assert actions([Is("a", 0)], [Put("a", b"v")]) == [CreateNode(A, b"", False), SetData(A, b"v", 0)]
    assert actions([Has("a")], [Del("a")], {"a": THERE}) == [Delete(A, 3)]


@pytest.mark.parametrize(
    ("conditions", "operations", "seen"),
    [
        ([Is("a", 71)], [], {"a": THERE}),
        ([Is("a", 70)], [], {}),
        ([Is("a", -1)], [], {"a": THERE}),
        ([Is("a", 70), Is("a", 71)], [], {"a": THERE}),
        ([Is("a", 0), Has("a")], [], {}),
        ([Is("a", 0), Has("a")], [Put("a", b"")], {}),
        ([Has("a")], [Put("a", b"")], {}),
        ([Has("a")], [Del("a")], {}),
    ],
)
def test_what_cannot_hold_is_not_planned(
    conditions: list[Condition], operations: list[Operation], seen: dict[str, Seen]
) -> None:
    assert actions(conditions, operations, seen) is None


def test_only_what_a_plan_needs_is_read() -> None:
    conditions: list[Condition] = [Is("new", 0), Is("old", 5), Has("node")]
    assert keys_to_read(conditions, [Put("new", b""), Put("b", b""), Del("c")]) == ["old", "b", "c"]


CONDITION = Step(Check(A, 3), is_condition=True)
WRITE = Step(SetData(A, b"", 3), is_condition=False)
CREATION = Step(CreateNode(A, b"", False), is_condition=True)


def test_a_failed_condition_refuses_and_any_other_failed_step_is_out_of_date() -> None:
    assert judge([CONDITION, WRITE], [True, object()]) is Verdict.DONE
    assert judge([CONDITION, WRITE], [BadVersionError(), RuntimeInconsistency()]) is Verdict.REFUSED
    assert judge([CONDITION, WRITE], [NoNodeError(), RuntimeInconsistency()]) is Verdict.REFUSED
    assert judge([CONDITION, WRITE], [RolledBackError(), BadVersionError()]) is Verdict.OUT_OF_DATE
    assert judge([CREATION, WRITE], [NodeExistsError(), RuntimeInconsistency()]) is Verdict.REFUSED


def test_a_missing_folder_refuses_nothing() -> None:
    assert judge([CREATION], [NoNodeError()]) is Verdict.OUT_OF_DATE


def test_an_error_that_no_plan_explains_is_raised() -> None:
    with pytest.raises(NoAuthError):
        judge([CONDITION, WRITE], [RolledBackError(), NoAuthError()])
