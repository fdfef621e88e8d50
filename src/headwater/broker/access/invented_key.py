"""The key from which credentials of users who do not exist are invented: the same on all nodes, and for ever.

It is not the secret of the cluster, which is replaced: a user who exists keeps the salt then, and a stranger would see
which names do not.
"""

import secrets
from typing import Final

from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put

KEY_BYTES: Final = 32


async def invented_key(metadata: MetaStore) -> bytes:
    """Drawn by the first node that asks. Raises Unavailable or Unknown, and ValueError for what is no key."""
    found = await metadata.get(keys.INVENTED)
    if found is None:
        drawn = secrets.token_hex(KEY_BYTES).encode()
        await metadata.txn([Is(keys.INVENTED, 0)], [Put(keys.INVENTED, drawn)])
        found = await metadata.get(keys.INVENTED)
        assert found is not None, "a key that was drawn stays"
    key = bytes.fromhex(found.value.decode())
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key {keys.INVENTED!r} of the metadata store has {len(key)} bytes, not {KEY_BYTES}")
    return key
