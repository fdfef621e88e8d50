"""The first users of a cluster, from a file in the data directory that `headwater security init` writes.

    {"admin": {"scram": …, "generation": 1, "created_ms": …}}        names and records, as in the metadata store

They are made if the cluster has no user yet. Then the file is removed: it has done what it was for.
"""

import json
import logging
from pathlib import Path
from typing import Final

from headwater.broker.access.user_record import UserRecord
from headwater.broker.settings.setting import ConfigError
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import MAX_OPS, Is, MetaStore, Put
from headwater.security.user_names import UnacceptableUserName, check_user_name

FILE_NAME: Final = "bootstrap-users.json"
MAX_FILE_BYTES: Final = 64 * 1024
MAX_USERS: Final = MAX_OPS // 2


async def take_in(metadata: MetaStore, data_dir: Path) -> None:
    """Raises ConfigError if there is a file that cannot be used, Unavailable or Unknown."""
    path = data_dir / FILE_NAME
    if not path.exists():
        return
    users = _read(path)
    if await metadata.list(keys.USERS):
        log_event("bootstrap_users_not_needed", logging.WARNING, reason="the cluster has users", file=path)
    else:
        names = {keys.user_key(name): record.to_json() for name, record in users.items()}
        written = await metadata.txn([Is(key, 0) for key in names], [Put(key, data) for key, data in names.items()])
        log_event("bootstrap_users_created" if written.ok else "bootstrap_users_not_needed", users=",".join(users))
    path.unlink(missing_ok=True)


def text_of(users: dict[str, UserRecord]) -> str:
    """Of such a file."""
    return json.dumps({name: json.loads(record.to_json()) for name, record in users.items()})


def _read(path: Path) -> dict[str, UserRecord]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        plain = json.loads(path.read_bytes())
        if not isinstance(plain, dict) or not 1 <= len(plain) <= MAX_USERS:
            raise ValueError(f"an object with 1 to {MAX_USERS} users is needed")
        for name in plain:
            check_user_name(name, is_any_name=True)
        return {name: UserRecord.from_json(json.dumps(record).encode()) for name, record in plain.items()}
    except (OSError, ValueError, KeyError, TypeError, UnacceptableUserName) as error:
        raise ConfigError(
            f"{path}: the first users cannot be read ({error!r:.200}): remove the file, or write it again with "
            "`headwater security init`"
        ) from error
