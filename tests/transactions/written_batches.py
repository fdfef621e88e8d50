"""Headers of batches as a partition would hold them."""

from headwater.records.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, BatchHeader

MAX_SEQUENCE = (1 << 31) - 1


def a_header(
    sequence: int, offset: int, *, count: int = 1, pid: int = 7, epoch: int = 0, time: int = 1_000, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, time, time, pid, epoch, sequence, count)


def in_transaction(sequence: int, offset: int, *, count: int = 1, pid: int = 7, epoch: int = 0) -> BatchHeader:
    return a_header(sequence, offset, count=count, pid=pid, epoch=epoch, attributes=TRANSACTIONAL)


def a_marker(offset: int, *, pid: int = 7, epoch: int = 0, time: int = 1_000) -> BatchHeader:
    return a_header(NO_SEQUENCE, offset, pid=pid, epoch=epoch, time=time, attributes=CONTROL | TRANSACTIONAL)
