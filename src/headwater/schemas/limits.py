"""How large and how deep a schema may be. A client that may register one may be hostile: each bound is checked before
the work that it bounds."""

from typing import Final

MAX_SCHEMA_BYTES: Final = 1024 * 1024
MAX_PROTOBUF_BYTES: Final = 128 * 1024
"""Text of a .proto file is parsed in Python: this takes about two seconds."""
MAX_DEPTH: Final = 100
"""Of nested types."""
MAX_JSON_DEPTH: Final = 3 * MAX_DEPTH
"""An Avro record is an object in a list in an object."""
MAX_TYPES: Final = 20_000
"""Types in one schema, with the types that it takes from others."""
MAX_COMPARISONS: Final = 30_000
"""Pairs of types that are compared to find out whether two schemas are compatible: a few seconds at most."""
MAX_REASONS: Final = 50
"""Reasons that are reported when they are not."""
MAX_REFERENCES: Final = 200
"""Schemas that one refers to, directly and through others."""
MAX_SUBJECT_CHARS: Final = 1_000
"""A subject is part of a record's key."""
