"""Every figure of a store that may be chosen, with its default."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class StoreOptions:
    journal_file_bytes: int = 64 * MIB
    journal_files: int = 4
    """The first is made when the store opens, the others when they are needed. When all are full, appends wait."""

    max_group_bytes: int = 8 * MIB
    """What one flush of the journal takes at most, so that the first of a group does not wait for too much."""
    max_group_entries: int = 1000
    max_queued_bytes: int = 64 * MIB
    """Appends beyond this wait for the writer before they are taken on."""

    block_bytes: int = 64 * KIB
    """A block, the unit of the index and of the checksum, is complete when it has at least this size."""
    open_files: int = 512
    index_cache_bytes: int = 64 * MIB

    inline_write_bytes: int = 64 * KIB
    """Appends in `os` mode below this are written without changing threads."""
    inline_read_bytes: int = 2 * MIB
    reader_threads: int = 4
    flush_threads: int = 16
    """Files of many segments are flushed at the same time: the file system then writes its own journal once for all."""

    reserve_bytes: int = 64 * MIB
    """A file that is given up when the disk is full, so that fences and checkpoints can still be written. 0: none."""
    low_water_fraction: float = 0.05
    low_water_bytes: int = 256 * MIB
    """No new replica when less is free than the smaller of these two."""

    runs_inline: bool = False
    """No threads: all work happens on the event loop, in a fixed order. For tests."""

    def __post_init__(self) -> None:
        if self.journal_file_bytes < 4 * KIB or self.journal_files < 1:
            raise ValueError("a journal needs at least one file of 4 KiB")
        for name in (
            "flush_threads",
            "reader_threads",
            "max_group_bytes",
            "max_group_entries",
            "max_queued_bytes",
            "block_bytes",
            "open_files",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive")
