"""Which stores a person means: those of a node by its number, or one by the beginning of its id."""

import asyncio
from pathlib import Path

import pytest

from headwater.cli.cluster.stores import find_stores, opened
from headwater.cli.output import CommandFailed
from headwater.metadata import keys
from headwater.metadata.store import Put
from headwater.model.cluster import StoreRecord
from headwater.model.ids import StoreId

LETTERS, DIGITS = StoreId("ab" * 16), StoreId("19958381" * 4)


async def found(tmp_path: Path, target: str) -> list[str]:
    async with opened(f"sqlite:{tmp_path / 'metadata.db'}") as metadata:
        for node_id, store_id in ((1, LETTERS), (2, DIGITS)):
            await metadata.txn([], [Put(keys.store_key(store_id), keys.encode(StoreRecord(store_id, node_id)))])
        return [record.store_id for record, _ in await find_stores(metadata, target)]


@pytest.mark.parametrize(
    ("target", "store_id"), [("1", LETTERS), ("2", DIGITS), ("abab", LETTERS), ("19958381", DIGITS), (DIGITS, DIGITS)]
)
def test_a_store_is_found_by_its_node_and_by_its_id_also_if_that_looks_like_a_number(
    tmp_path: Path, target: str, store_id: str
) -> None:
    assert asyncio.run(found(tmp_path, target)) == [store_id]


@pytest.mark.parametrize(("target", "words"), [("7", "node 7"), ("199", "node 199"), ("ba", "store ba")])
def test_what_is_not_there_is_named_as_what_it_looks_like(tmp_path: Path, target: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        asyncio.run(found(tmp_path, target))
