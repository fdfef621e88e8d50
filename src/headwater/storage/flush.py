"""Flushing, where an error is final.

After a failed flush the kernel may have dropped the pages it could not write and marked the rest clean, so a
second try that succeeds proves nothing. The store stops instead.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from headwater.model.replica import Buffer
from headwater.storage.files import Files

SEVERAL: Final = 8
"""From so many files on, threads pay."""

T = TypeVar("T")


class FlushFailed(Exception):
    """What the device holds is unknown."""


def flush(files: Files, fd: int) -> None:
    try:
        files.sync_data(fd)
    except OSError as error:
        raise FlushFailed(f"flush failed: {error}") from error


def flush_directory(files: Files, path: Path) -> None:
    try:
        files.sync_directory(path)
    except OSError as error:
        raise FlushFailed(f"flush of directory {path} failed: {error}") from error


def replace_file(files: Files, path: Path, content: Sequence[Buffer]) -> None:
    """The file has the new content or, after a crash or an error, the old one."""
    draft = path.with_name(path.name + ".new")
    files.unlink(draft)
    fd = files.open(draft, create=True)
    try:
        files.pwritev(fd, content, 0)
        flush(files, fd)
    finally:
        files.close(fd)
    files.rename(draft, path)
    flush_directory(files, path.parent)


def for_each(items: Sequence[T], function: Callable[[T], None], threads: int) -> None:
    """Call the function, which flushes something, for each of them, several at a time. The first error is raised."""
    if threads == 1 or len(items) < SEVERAL:
        for item in items:
            function(item)
        return
    with ThreadPoolExecutor(threads, "headwater-flush") as pool:
        list(pool.map(function, items))
