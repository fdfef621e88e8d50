"""Bindings in the metadata store: two nodes alter them, and each judges by what the store has."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.access.acl_bindings import AclBindings
from headwater.broker.settings.compiled_keys import COMPILED_AT_ONCE
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MAX_OPS, MetaStore, Put
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_index import AclIndex
from tests.security.acl_bindings import (
    ALICE,
    GUARDED,
    ROOT,
    Question,
    binding,
    is_allowed,
    question_lists,
    some_bindings,
)
from tests.support.effort import amount
from tests.support.eventually import until

EVERYTHING = AclFilter()

changes = st.lists(
    st.tuples(st.integers(0, 1), st.booleans(), st.lists(some_bindings, min_size=1, max_size=4, unique=True)),
    min_size=1,
    max_size=6,
)


@asynccontextmanager
async def store() -> AsyncIterator[MetaStore]:
    with tempfile.TemporaryDirectory() as directory:
        metadata = await open_metadata(f"sqlite:{Path(directory) / 'metadata.db'}")
        try:
            yield metadata
        finally:
            await metadata.close()


@asynccontextmanager
async def node(metadata: MetaStore) -> AsyncIterator[AclBindings]:
    """That has loaded the bindings, and follows what others alter."""
    bindings = AclBindings(metadata, super_users=[ROOT], guarded_topics=[GUARDED])
    await bindings.load()
    following = asyncio.get_running_loop().create_task(bindings.follow())
    try:
        yield bindings
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await bindings.close()


async def has(bindings: AclBindings, expected: set[AclBinding]) -> None:
    await until(lambda: set(bindings.matching(EVERYTHING)) == expected, "the other node follows")


@given(changes, question_lists)
@settings(max_examples=amount(200, 25))
def test_what_a_node_acknowledges_it_honours_and_what_the_store_has_all_do(
    changes: Sequence[tuple[int, bool, list[AclBinding]]], questions: Sequence[Question]
) -> None:
    async def trial() -> None:
        async with store() as metadata, node(metadata) as first, node(metadata) as second:
            expected: set[AclBinding] = set()
            for where, is_added, some in changes:
                altering = (first, second)[where]
                await (altering.create(some) if is_added else altering.delete(some))
                expected = expected | {*some} if is_added else expected - {*some}
                await has((second, first)[where], expected)  # or its next change would be judged by what was before
                assert set(altering.matching(EVERYTHING)) == expected, "at once, where it was altered"
                for question in questions:
                    allowed = is_allowed(expected, question)
                    assert [bool(question.ask(each.index)) for each in (first, second)] == [allowed] * 2
            async with node(metadata) as restarted:
                assert set(restarted.matching(EVERYTHING)) == expected

    asyncio.run(trial())


def test_bindings_that_two_nodes_make_at_once_are_all_there() -> None:
    async def trial() -> None:
        async with store() as metadata, node(metadata) as first, node(metadata) as second:
            made = [[binding(name=f"{word}-{number}") for number in range(30)] for word in ("first", "second")]
            await asyncio.gather(first.create(made[0]), second.create(made[1]))
            for each in (first, second):
                await has(each, {*made[0], *made[1]})

    asyncio.run(trial())


def test_more_bindings_than_a_transaction_takes_are_made_and_deleted() -> None:
    async def trial() -> None:
        async with store() as metadata, node(metadata) as bindings:
            made = [binding(name=f"topic-{number}") for number in range(2 * MAX_OPS + 1)]
            await bindings.create(made)
            assert set(bindings.matching(EVERYTHING)) == {*made}
            await bindings.delete(made[1:])
            assert bindings.matching(EVERYTHING) == made[:1]

    asyncio.run(trial())


def test_many_bindings_are_in_force_too_when_they_are_acknowledged() -> None:
    """They are indexed in a thread."""

    async def trial() -> None:
        async with store() as metadata, node(metadata) as bindings:
            made = [binding(name=f"topic-{number}") for number in range(COMPILED_AT_ONCE + 1)]
            await bindings.create(made)
            question = Question(principal=ALICE, name=made[-1].name)
            assert question.ask(bindings.index)
            await bindings.delete(made[-1:])
            assert not question.ask(bindings.index)

    asyncio.run(trial())


def test_a_binding_that_cannot_be_read_denies_everything_on_its_resources() -> None:
    """Of a later version, which may deny something."""

    async def trial() -> None:
        allowed = binding(name="orders")
        async with store() as metadata, node(metadata) as bindings:
            await bindings.create([allowed, binding(name="others")])
            unreadable = keys.acl_key("TOPIC", "LITERAL", "orders", "of-a-later-version")
            await metadata.txn([], [Put(unreadable, b'{"principal":"User:*","while":"it rains"}')])
            await until(lambda: not Question(name="orders").ask(bindings.index), "the node follows")
            assert Question(name="others").ask(bindings.index)
            assert Question(principal=ROOT, name="orders").ask(bindings.index)

    asyncio.run(trial())


def test_a_change_is_told_to_those_who_watch_after_it_is_in_force() -> None:
    async def trial() -> None:
        async with store() as metadata, node(metadata) as bindings:
            seen: list[AclIndex] = []
            bindings.watchers.append(lambda: seen.append(bindings.index))
            await bindings.create([binding(name="orders")])
            assert seen and seen[-1] is bindings.index
            assert seen[-1].version > 0

    asyncio.run(trial())
