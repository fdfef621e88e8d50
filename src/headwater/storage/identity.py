"""Who a store is: drawn when its directory is formatted, so that an emptied disk is a different store."""

import contextlib
import json
import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.model.ids import StoreId
from headwater.storage.files import Files, read_file
from headwater.storage.flush import replace_file

FORMAT: Final = 1
_FILE_NAME: Final = "store.json"


class UnreadableStore(Exception):
    """The directory is not a store, or one of a format that this version does not know."""


@dataclass(frozen=True, slots=True)
class Identity:
    store_id: StoreId
    salt: int
    """Seed of the journal's checksums."""


def load_or_format(files: Files, directory: Path) -> Identity:
    path = directory / _FILE_NAME
    content = read_file(files, path)
    if content is not None:
        return _parse(path, content)
    leftovers = [name for name in files.list(directory) if name.endswith(".journal") or name == "state"]
    if leftovers:
        raise UnreadableStore(f"{directory} has data ({', '.join(sorted(leftovers))}) but no {_FILE_NAME}")
    identity = Identity(StoreId(uuid.uuid4().hex), secrets.randbits(32))
    document = {"format": FORMAT, "store_id": identity.store_id, "salt": identity.salt}
    replace_file(files, path, [json.dumps(document).encode()])
    for ancestor in (directory.parent, directory.parent.parent):
        with contextlib.suppress(OSError):  # the caller may have made them just now, or may not be allowed to look
            files.sync_directory(ancestor)
    return identity


def _parse(path: Path, content: bytes) -> Identity:
    try:
        document = json.loads(content)
        store_format, store_id, salt = document["format"], str(document["store_id"]), int(document["salt"])
        int(store_id, 16)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableStore(f"{path} cannot be read: {error}") from error
    if store_format != FORMAT:
        raise UnreadableStore(f"{path} says format {store_format}, and this version knows {FORMAT}")
    return Identity(StoreId(store_id), salt)
