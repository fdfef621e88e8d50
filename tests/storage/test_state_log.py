import pytest

from headwater.storage.entry import EntryKind, JournalEntry
from headwater.storage.state_log import REWRITE_ABOVE_BYTES, Checkpoint, StateLog, deleted
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import DIRECTORY, segment

PATH = DIRECTORY / "state"
SALT = 5


def state(number: int, instance: int = 1, payload: bytes = b"x" * 100) -> JournalEntry:
    return JournalEntry(EntryKind.STATE, segment(number), instance, payload=(payload,))


def checkpoint(generation: int) -> Checkpoint:
    return Checkpoint(generation, generation * 10, generation * 100, "boot")


def with_three_checkpoints() -> tuple[MemoryFiles, list[int]]:
    """And the length of the file after each."""
    files = MemoryFiles()
    log = StateLog(files, PATH, SALT)
    assert log.load().checkpoint is None
    log.rewrite([state(1), state(2)], checkpoint(1))
    lengths = [len(files.content(PATH))]
    log.append([deleted(segment(2), 1), state(3)], checkpoint(2))
    lengths.append(len(files.content(PATH)))
    log.append([state(3, instance=7), state(4)], checkpoint(3))
    lengths.append(len(files.content(PATH)))
    return files, lengths


def test_checkpoints_add_up() -> None:
    files, _ = with_three_checkpoints()
    loaded = StateLog(files, PATH, SALT).load()
    assert {name: entry.instance for name, entry in loaded.entries.items()} == {
        segment(1): 1,
        segment(3): 7,
        segment(4): 1,
    }
    assert loaded.checkpoint == checkpoint(3)
    assert (loaded.is_cut_off, loaded.damage) == (False, "")


def test_a_checkpoint_that_was_cut_off_anywhere_does_not_count() -> None:
    files, lengths = with_three_checkpoints()
    content = files.content(PATH)
    for length in range(lengths[1], lengths[2]):
        files.set_content(PATH, content[:length])
        log = StateLog(files, PATH, SALT)
        loaded = log.load()
        assert loaded.checkpoint == checkpoint(2)
        assert set(loaded.entries) == {segment(1), segment(3)}
        assert loaded.damage == ""
        assert log.must_rewrite == (length > lengths[1])


@pytest.mark.parametrize("hole", range(0, 500, 50))
def test_a_checkpoint_with_a_hole_does_not_count_even_if_its_end_is_there(hole: int) -> None:
    files, lengths = with_three_checkpoints()
    content = bytearray(files.content(PATH))
    start = lengths[1] + hole
    content[start : start + 50] = bytes(min(50, len(content) - start))
    files.set_content(PATH, bytes(content))
    loaded = StateLog(files, PATH, SALT).load()
    assert loaded.checkpoint == checkpoint(2)
    assert set(loaded.entries) == {segment(1), segment(3)}


def test_damage_before_the_last_checkpoint_is_reported() -> None:
    files, lengths = with_three_checkpoints()
    for position in range(110, lengths[1], 40):
        content = bytearray(files.content(PATH))
        content[position] ^= 1
        files.set_content(PATH, bytes(content))
        loaded = StateLog(files, PATH, SALT).load()
        assert loaded.damage
        assert loaded.checkpoint == checkpoint(3)
        content[position] ^= 1
        files.set_content(PATH, bytes(content))


def test_a_file_that_is_mostly_out_of_date_asks_to_be_rewritten() -> None:
    files = MemoryFiles()
    log = StateLog(files, PATH, SALT)
    log.load()
    log.rewrite([state(1)], checkpoint(1))
    appends = 0
    while not log.must_rewrite:
        log.append([state(1, payload=bytes(100_000))], checkpoint(2))
        appends += 1
    assert appends, "a file that was just written is up to date"
    assert len(files.content(PATH)) > REWRITE_ABOVE_BYTES
    log.rewrite([state(1)], checkpoint(3))
    assert len(files.content(PATH)) < 1000
    assert StateLog(files, PATH, SALT).load().checkpoint == checkpoint(3)
