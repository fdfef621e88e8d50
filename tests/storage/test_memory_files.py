"""The file system that stands in for a disk: does it lose what a disk may lose, and nothing else?"""

import errno
from pathlib import Path

import pytest

from headwater.storage.files import DirectoryInUse
from headwater.storage.flush import replace_file
from headwater.testing.fakes.files import SECTOR_BYTES, MemoryFiles

PATH = Path("/d/file")


def disks(files: MemoryFiles) -> list[MemoryFiles]:
    point = files.crash_point()
    return [point.nothing_more(), point.everything(), *point.draws(1, 60)]


def test_what_was_synced_is_there_and_what_was_not_may_be_there_sector_by_sector() -> None:
    files = MemoryFiles()
    fd = files.open(PATH, create=True)
    files.pwritev(fd, [b"a" * 2 * SECTOR_BYTES], 0)
    files.sync_data(fd)
    files.sync_directory(PATH.parent)
    files.pwritev(fd, [b"b" * SECTOR_BYTES], SECTOR_BYTES // 2)
    contents = {disk.content(PATH) for disk in disks(files)}
    half = SECTOR_BYTES // 2
    old, new = b"a" * SECTOR_BYTES, b"b" * half
    first, second = {old, b"a" * half + new}, {old, new + b"a" * half}
    assert contents == {one + two for one in first for two in second}


def test_a_sector_has_the_content_of_some_moment_and_never_a_mixture() -> None:
    files = MemoryFiles()
    fd = files.open(PATH, create=True)
    files.sync_directory(PATH.parent)
    files.pwritev(fd, [b"1" * 10], 0)
    files.pwritev(fd, [b"2" * 5], 10)
    contents = {disk.content(PATH).rstrip(b"\0") for disk in disks(files)}
    assert contents == {b"", b"1" * 10, b"1" * 10 + b"2" * 5}


def test_a_name_is_there_for_sure_only_after_its_directory_was_synced() -> None:
    files = MemoryFiles()
    fd = files.open(PATH, create=True)
    files.pwritev(fd, [b"x"], 0)
    files.sync_data(fd)
    assert {PATH in disk.paths() for disk in disks(files)} == {False, True}
    files.sync_directory(PATH.parent)
    assert {PATH in disk.paths() for disk in disks(files)} == {True}
    files.unlink(PATH)
    assert {PATH in disk.paths() for disk in disks(files)} == {False, True}


def test_a_replaced_file_has_the_old_content_or_the_new_one_wherever_the_power_goes() -> None:
    files = MemoryFiles()
    replace_file(files, PATH, [b"old" * 1000])
    start = len(files.effects)
    replace_file(files, PATH, [b"new" * 1000])
    for effect_count in range(start, len(files.effects) + 1):
        point = files.crash_point(effect_count)
        for disk in (point.nothing_more(), point.everything(), *point.draws(effect_count, 20)):
            assert disk.content(PATH) in {b"old" * 1000, b"new" * 1000}
    assert files.crash_point().nothing_more().content(PATH) == b"new" * 1000


def test_a_killed_process_leaves_everything_it_wrote_and_a_later_cut_may_still_take_it() -> None:
    files = MemoryFiles()
    fd = files.open(PATH, create=True)
    files.sync_directory(PATH.parent)
    files.pwritev(fd, [b"x" * 100], 0)
    later = files.killed()
    assert later.content(PATH) == b"x" * 100
    assert later.boot_id() == files.boot_id()
    assert later.crash_point().nothing_more().content(PATH) == b""


def test_a_full_disk_writes_what_fits_and_then_refuses() -> None:
    files = MemoryFiles(capacity_bytes=10)
    fd = files.open(PATH, create=True)
    with pytest.raises(OSError) as caught:
        files.pwritev(fd, [b"x" * 11], 0)
    assert caught.value.errno == errno.ENOSPC
    assert files.content(PATH) == b"x" * 10
    files.pwritev(fd, [b"y" * 10], 0)


def test_failures_come_when_they_were_ordered() -> None:
    files = MemoryFiles()
    fd = files.open(PATH, create=True)
    files.fail("sync_data", errno.EIO, passes=1)
    files.sync_data(fd)
    with pytest.raises(OSError):
        files.sync_data(fd)
    files.sync_data(fd)
    lock = files.lock(Path("/d/lock"))
    with pytest.raises(DirectoryInUse):
        files.lock(Path("/d/lock"))
    files.close(lock)
    files.lock(Path("/d/lock"))
