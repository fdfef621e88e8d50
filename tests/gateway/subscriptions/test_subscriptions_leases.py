"""HeldLeases and their ids: arithmetic."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.subscriptions.members.leases import HeldLeases, Lease, LeaseEnd
from headwater.gateway.subscriptions.members.pending_acks import AckType, PendingAck, ack_batches
from headwater.gateway.subscriptions.members.stream_progress import StreamProgress

SECRET = b"s" * 32


def named(leases: HeldLeases, lease: Lease, now_ms: int = 0) -> Lease | LeaseEnd:
    return leases.named(leases.ack_id(lease.partition, lease.offset, lease.number), now_ms)


def test_an_id_names_its_lease_until_it_is_over() -> None:
    leases = HeldLeases(SECRET, 10)
    lease = leases.lend(3, 42, until_ms=100)
    assert named(leases, lease, 99) is lease
    assert named(leases, lease, 100) is LeaseEnd.EXPIRED


def test_a_lease_that_was_acknowledged_is_remembered_as_such() -> None:
    leases = HeldLeases(SECRET, 10)
    lease = leases.lend(0, 1, 100)
    leases.acknowledge(lease)
    assert named(leases, lease) is LeaseEnd.ACKNOWLEDGED
    assert len(leases) == 0


def test_the_id_of_an_earlier_delivery_does_not_speak_for_a_later_one() -> None:
    leases = HeldLeases(SECRET, 10)
    earlier = leases.lend(0, 1, 100)
    later = leases.lend(0, 1, 200)
    assert named(leases, earlier) is LeaseEnd.EXPIRED
    assert named(leases, later) is later


def test_after_a_refused_acknowledgement_the_lease_is_expired() -> None:
    leases = HeldLeases(SECRET, 10)
    lease = leases.lend(0, 1, 100)
    leases.acknowledge(lease)
    leases.fail(lease)
    assert named(leases, lease) is LeaseEnd.EXPIRED


def test_an_id_of_another_member_is_unknown() -> None:
    ours, theirs = HeldLeases(SECRET, 10), HeldLeases(b"t" * 32, 10)
    ours.lend(0, 1, 100)
    lease = theirs.lend(0, 1, 100)
    assert ours.named(theirs.ack_id(0, 1, lease.number), 0) is LeaseEnd.UNKNOWN


@given(st.text(max_size=80))
def test_made_up_ids_are_unknown(text: str) -> None:
    leases = HeldLeases(SECRET, 10)
    leases.lend(0, 0, 100)
    assert leases.named(text, 0) is LeaseEnd.UNKNOWN


@given(st.integers(0, 37), st.integers(1, 255))
def test_an_id_with_one_character_changed_is_unknown(position: int, shift: int) -> None:
    leases = HeldLeases(SECRET, 10)
    lease = leases.lend(5, 2**40, 100)
    right = leases.ack_id(lease.partition, lease.offset, lease.number)
    wrong = right[:position] + chr((ord(right[position]) + shift) % 128) + right[position + 1 :]
    # The last character of base64 has bits that do not count.
    assert wrong == right or position == len(right) - 1 or leases.named(wrong, 0) is LeaseEnd.UNKNOWN


def test_partitions_that_moved_take_their_leases_with_them() -> None:
    leases = HeldLeases(SECRET, 10)
    gone, stays = leases.lend(0, 1, 100), leases.lend(1, 1, 100)
    leases.drop_partitions([0])
    assert named(leases, gone) is LeaseEnd.EXPIRED
    assert named(leases, stays) is stays


@given(st.dictionaries(st.integers(0, 40), st.sampled_from(list(AckType)), min_size=1))
def test_neighbours_with_the_same_type_are_acknowledged_as_one_batch(acks: dict[int, AckType]) -> None:
    pending = [PendingAck(Lease(7, offset, 1, 0), ack_type, None) for offset, ack_type in acks.items()]
    (batches,) = ack_batches(pending).values()
    sent = {offset: types[0] for first, last, types in batches for offset in range(first, last + 1)}
    assert sent == acks
    for one, other in pairwise(batches):
        assert one[1] < other[0]
        assert one[1] + 1 < other[0] or one[2] != other[2], "neighbours with the same type are one batch"


@given(st.permutations(range(8)))
def test_a_stream_is_committed_up_to_its_first_open_record(order: list[int]) -> None:
    progress = StreamProgress()
    for offset in range(8):
        progress.began(0, offset)
    ended: set[int] = set()
    for offset in order:
        progress.ended(0, offset)
        ended.add(offset)
        first_open = next((each for each in range(8) if each not in ended), 8)
        offsets = progress.to_commit()
        assert offsets.get(0, first_open) == first_open
        progress.committed(offsets)
    assert progress.to_commit() == {}


def test_a_partition_that_is_lost_is_not_committed() -> None:
    progress = StreamProgress()
    progress.began(0, 5)
    progress.ended(0, 5)
    progress.drop([0])
    assert progress.to_commit() == {}
