"""Flushing, where an error is final.

After a failed flush the kernel may have dropped the pages it could not write and marked the rest clean, so a
second try that succeeds proves nothing. The store stops instead.
"""

from collections.abc import Sequence
from pathlib import Path

from headwater.model.replica import Buffer
from headwater.storage.files import Files


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
