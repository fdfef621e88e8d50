"""What answers about users who do not exist are made from."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.access.invented_key import KEY_BYTES, invented_key
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Put


def test_the_key_is_drawn_once_for_all_nodes(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [await open_metadata(f"sqlite:{tmp_path}/metadata.db") for _ in range(2)]
        drawn = {await invented_key(store) for store in (*stores, *stores)}
        assert [len(key) for key in drawn] == [KEY_BYTES]
        for store in stores:
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("value", [b"", b"00", b"no digits", b"\xff"])
def test_what_is_no_key_stops_the_start(tmp_path: Path, value: bytes) -> None:
    async def main() -> None:
        store = await open_metadata(f"sqlite:{tmp_path}/metadata.db")
        await store.txn([], [Put(keys.INVENTED, value)])
        with pytest.raises(ValueError):
            await invented_key(store)
        await store.close()

    asyncio.run(main())
