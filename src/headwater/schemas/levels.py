"""How much a subject lets its schemas change, and what may be done to it."""

import enum


class Level(enum.Enum):
    """Who must be able to read what: readers with the new schema old data, or readers with old schemas new data."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_old(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        """Every earlier version counts, not only the latest."""
        return self.value.endswith("_TRANSITIVE")


class Mode(enum.Enum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """As READONLY; where it is global, no subject may say otherwise."""
    IMPORT = "IMPORT"
    """Schemas come with their ids and versions, and are not compared."""
