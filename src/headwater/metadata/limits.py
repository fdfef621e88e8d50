"""What every back end refuses before it asks its engine: keys of the wrong shape, and transactions that are too large.

The limits are the smallest that SQLite, etcd and ZooKeeper have in common, so that whatever one accepts, all do.

    key       one to MAX_KEY_BYTES printable ASCII characters without spaces: parts joined by "/", none of
              them empty, "." or ".."
    prefix    a key followed by "/"
"""

import re
from collections.abc import Sequence

from headwater.metadata.store import MAX_OPS, MAX_TXN_BYTES, Condition, Operation, Put

MAX_KEY_BYTES = 512
MAX_SHOWN_CHARS = 80
"""How much of a refused key an error message repeats."""

_KEY = re.compile(r"(?!\.{1,2}(?:/|\Z))[!-.0-~]+(?:/(?!\.{1,2}(?:/|\Z))[!-.0-~]+)*\Z")


def check_key(key: str) -> None:
    if not isinstance(key, str):
        raise ValueError(f"a metadata key is a str, not {type(key).__name__}")
    if len(key) > MAX_KEY_BYTES:
        raise ValueError(
            f"metadata key {key[:MAX_SHOWN_CHARS]!r}… has {len(key)} characters, at most {MAX_KEY_BYTES} are allowed"
        )
    if not _KEY.match(key):
        raise ValueError(
            f"metadata key {key[:MAX_SHOWN_CHARS]!r} must be printable ASCII without spaces, in parts joined by '/', "
            "none of them empty, '.' or '..'"
        )


def check_keys(keys: Sequence[str]) -> None:
    if len(keys) > MAX_OPS:
        raise ValueError(f"at most {MAX_OPS} keys are read together, not {len(keys)}")
    for key in keys:
        check_key(key)


def check_prefix(prefix: str) -> None:
    if not isinstance(prefix, str) or not prefix.endswith("/"):
        raise ValueError(f"metadata prefix {str(prefix)[:MAX_SHOWN_CHARS]!r} must end in '/'")
    check_key(prefix[:-1])


def check_ttl(ttl_s: float) -> None:
    if not 0 < ttl_s < 86_400:
        raise ValueError(f"a session's time to live is between 0 and 86400 seconds, not {ttl_s}")


def check_txn(conditions: Sequence[Condition], operations: Sequence[Operation]) -> None:
    for what, items in (("conditions", conditions), ("operations", operations)):
        if len(items) > MAX_OPS:
            raise ValueError(f"a transaction has at most {MAX_OPS} {what}, not {len(items)}")
    size_bytes = 0
    written: set[str] = set()
    sessions: set[str] = set()
    for condition in conditions:
        check_key(condition.key)
        size_bytes += len(condition.key)
    for operation in operations:
        check_key(operation.key)
        if operation.key in written:
            raise ValueError(f"metadata key {operation.key!r} appears twice in one transaction")
        written.add(operation.key)
        size_bytes += len(operation.key)
        if isinstance(operation, Put):
            if not isinstance(operation.value, bytes):
                raise ValueError(f"the value of {operation.key!r} must be bytes, not {type(operation.value).__name__}")
            size_bytes += len(operation.value)
            if operation.session is not None:
                sessions.add(operation.session.id)
    if size_bytes > MAX_TXN_BYTES:
        raise ValueError(f"a transaction has at most {MAX_TXN_BYTES} bytes of keys and values, not {size_bytes}")
    if len(sessions) > 1:
        raise ValueError("a transaction may write the keys of one session only")
