"""The bytes of the calls: there and back, and what is not a call at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import Durability, ReplicaState, SealedReplica, SegmentDescription, StoreError
from headwater.peers import messages
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.handshake import NONCE_BYTES, CallerSide, NoCommonVersion, StoreSide
from headwater.peers.messages import ERRORS, REPLY_BYTES, Call, CreateCall, Donor, PeerAddress
from headwater.wire.cursor import Cursor, MalformedRequest

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
UINT32 = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.binary(min_size=16, max_size=16).map(lambda data: SegmentId(data.hex()))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
SECRET = b"sixteen bytes and more"
STORE = bytes(range(16))


def framed(call: Call, *body: bytes, number: int = 7) -> bytearray:
    """A request as it arrives: without its length."""
    frame = bytearray(messages.request(1, call, number, STORE, *body))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def replied(number: int, *body: bytes) -> bytearray:
    return bytearray(b"".join(messages.reply(number, *body)))


@given(IDS, INT64, INT64, INT64, st.lists(st.binary(max_size=50), max_size=4), UINT32)
def test_an_append_is_what_it_was(
    segment: SegmentId, first: int, end: int, lac: int, batches: list[bytes], number: int
) -> None:
    size = sum(map(len, batches))
    head = messages.append_request(1, number, STORE, segment, first, end, lac, size)
    frame = bytearray(b"".join([head, *batches]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    del frame[:4]
    request = messages.read_request(frame)
    assert (request.version, request.call, request.number, request.store_id) == (1, Call.APPEND, number, STORE)
    append = messages.read_append(frame)
    assert append[:4] == (segment, first, end, lac)
    assert append.batches == b"".join(batches)
    assert append.batches.obj is frame, "a view, not a copy"


@given(st.builds(CreateCall, IDS, TEXTS, INT64, INT32, st.binary(max_size=100), st.sampled_from(Durability)))
def test_a_create_is_what_it_was(create: CreateCall) -> None:
    frame = framed(Call.CREATE, messages.create_body(create))
    assert messages.read_create(messages.body_of(frame)) == create


@given(
    st.builds(
        SegmentDescription,
        segment=IDS,
        partition=TEXTS,
        base=INT64,
        end=INT64,
        epoch=INT32,
        header=st.binary(max_size=50),
        durability=st.sampled_from(Durability),
        crc32c=UINT32,
        size_bytes=UINT64,
    ),
    st.lists(
        st.builds(Donor, IDS.map(StoreId), st.builds(PeerAddress, TEXTS, st.integers(0, 65535))),
        max_size=messages.MAX_DONORS,
    ),
)
def test_a_copy_is_what_it_was(description: SegmentDescription, donors: list[Donor]) -> None:
    frame = framed(Call.COPY, messages.copy_body(description, donors))
    assert messages.read_copy(messages.body_of(frame)) == (description, donors)


@given(IDS, INT64, INT64, UINT32)
def test_the_small_calls_are_what_they_were(segment: SegmentId, offset: int, limit: int, size: int) -> None:
    for is_copy in (False, True):
        body = framed(Call.READ, messages.read_body(segment, offset, limit, size, is_copy))
        assert messages.read_read(messages.body_of(body)) == (segment, offset, limit, min(size, 2**31 - 1), is_copy)
    body = framed(Call.SEAL, messages.segment_and_offset_body(segment, offset))
    assert messages.read_segment_and_offset(messages.body_of(body)) == (segment, offset)
    body = framed(Call.FENCE, messages.segment_body(segment))
    assert messages.read_segment(messages.body_of(body)) == segment


@given(
    st.builds(
        ReplicaState,
        segment=IDS, partition=TEXTS, base=INT64, end=INT64, epoch=INT32, lac=INT64, size_bytes=UINT64,
        max_timestamp=INT64, is_fenced=st.booleans(), in_doubt=st.booleans(), is_sealed=st.booleans(),
        instance=UINT64, header=st.binary(max_size=100),
    ),
    st.builds(SealedReplica, INT64, UINT64, UINT32, INT64),
    st.none() | st.integers(0, 2**63 - 1),
)  # fmt: skip
def test_replies_are_what_they_were(state: ReplicaState, sealed: SealedReplica, offset: int | None) -> None:
    for frame in (replied(9), replied(9, b"x" * 100)):
        messages.check_reply(frame, 9)
    assert messages.read_state_reply(replied(9, messages.state_body(state))) == state
    assert messages.read_sealed_reply(replied(9, messages.sealed_body(sealed))) == sealed
    assert messages.read_offset_reply(replied(9, messages.offset_body(offset))) == offset


def test_every_error_of_a_store_has_a_status_and_comes_back_as_itself() -> None:
    leaves = {error for error in _all_errors(StoreError) if error.__module__ == "headwater.model.replica"}
    assert leaves == set(ERRORS.values()), "a new exception needs a status"
    for error in leaves:
        (frame,) = messages.error_reply(3, error("why it is so"))
        with pytest.raises(error, match="why it is so") as raised:
            messages.check_reply(bytearray(frame), 3)
        assert type(raised.value) is error


def _all_errors(error: type[StoreError]) -> set[type[StoreError]]:
    return {error}.union(*(_all_errors(sub) for sub in error.__subclasses__()))


def test_an_error_that_peers_do_not_know_is_a_refusal_and_a_long_one_is_cut() -> None:
    (frame,) = messages.error_reply(3, NoCommonVersion("x" * 10_000))
    assert len(frame) == REPLY_BYTES + messages.MAX_MESSAGE_BYTES
    with pytest.raises(StoreError, match="xxx"):
        messages.check_reply(bytearray(frame), 3)
    frame = bytearray(frame)
    frame[0] = 200
    with pytest.raises(StoreError):
        messages.check_reply(frame, 3)


READERS = {
    Call.CREATE: messages.read_create,
    Call.FENCE: messages.read_segment,
    Call.READ: messages.read_read,
    Call.SEAL: messages.read_segment_and_offset,
    Call.COPY: messages.read_copy,
}


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=300))
def test_any_bytes_are_a_request_or_malformed(call: Call, body: bytes) -> None:
    frame = framed(call, body)
    try:
        READERS[call](messages.body_of(frame))
    except MalformedRequest:
        return


@given(st.binary(max_size=200))
def test_any_bytes_are_a_reply_or_malformed(body: bytes) -> None:
    frame = bytearray(body)
    for read in (
        lambda frame: messages.check_reply(frame, 1),
        messages.read_request,
        messages.read_append,
        messages.read_append_reply,
        messages.read_sealed_reply,
        messages.read_state_reply,
    ):
        try:
            read(frame)
        except (MalformedRequest, StoreError):
            continue


def test_a_reply_to_another_request_is_noticed() -> None:
    with pytest.raises(MalformedRequest, match="in place of"):
        messages.check_reply(replied(8), 9)


# The handshake


def sides(ours: bytes = SECRET, theirs: bytes = SECRET) -> tuple[CallerSide, StoreSide]:
    return CallerSide(ClusterSecrets(ours), b"c" * NONCE_BYTES), StoreSide(ClusterSecrets(theirs), b"s" * NONCE_BYTES)


def test_two_that_know_the_secret_prove_it_to_each_other() -> None:
    caller, store = sides()
    version, proof = caller.prove(Cursor(store.answer(Cursor(caller.hello()))))
    assert version == messages.NEWEST_VERSION
    answer = store.verify(Cursor(proof))
    assert answer is not None
    assert caller.is_proven(Cursor(answer))
    assert not caller.is_proven(Cursor(proof)), "a proof that is sent back proves nothing"
    assert store.verify(Cursor(proof)) is None, "a proof is good for one time"


def test_another_secret_another_nonce_and_no_hello_are_refused() -> None:
    caller, store = sides(theirs=b"another secret of 16")
    _, proof = caller.prove(Cursor(store.answer(Cursor(caller.hello()))))
    assert store.verify(Cursor(proof)) is None
    caller, store = sides()
    _, proof = caller.prove(Cursor(store.answer(Cursor(caller.hello()))))
    replay = StoreSide(ClusterSecrets(SECRET), b"t" * NONCE_BYTES)
    replay.answer(Cursor(caller.hello()))
    assert replay.verify(Cursor(proof)) is None
    assert StoreSide(ClusterSecrets(SECRET), b"s" * NONCE_BYTES).verify(Cursor(proof)) is None
    assert not CallerSide(ClusterSecrets(SECRET), b"c" * NONCE_BYTES).is_proven(Cursor(bytes(32)))


def test_a_secret_that_is_taken_away_during_a_handshake_proves_nothing() -> None:
    secrets = ClusterSecrets(SECRET, b"another secret of 16")
    caller, store = CallerSide(ClusterSecrets(SECRET), b"c" * NONCE_BYTES), StoreSide(secrets, b"s" * NONCE_BYTES)
    _, proof = caller.prove(Cursor(store.answer(Cursor(caller.hello()))))
    secrets.replace([b"another secret of 16"])
    assert store.verify(Cursor(proof)) is None
    assert store.proven is None


def test_proofs_are_about_the_connection_where_it_has_a_binding() -> None:
    for ours, theirs in ((b"x", b"y"), (b"x", b""), (b"", b"x")):
        caller = CallerSide(ClusterSecrets(SECRET), b"c" * NONCE_BYTES, ours)
        store = StoreSide(ClusterSecrets(SECRET), b"s" * NONCE_BYTES, theirs)
        _, proof = caller.prove(Cursor(store.answer(Cursor(caller.hello()))))
        assert store.verify(Cursor(proof)) is None


def test_nodes_of_the_version_before_are_understood_without_tls_alone() -> None:
    old = bytes([1, 1]) + b"c" * NONCE_BYTES
    assert StoreSide(ClusterSecrets(SECRET), b"s" * NONCE_BYTES).answer(Cursor(old))[0] == 1
    with pytest.raises(NoCommonVersion):
        StoreSide(ClusterSecrets(SECRET), b"s" * NONCE_BYTES, b"x").answer(Cursor(old))
    CallerSide(ClusterSecrets(SECRET), b"c" * NONCE_BYTES).prove(Cursor(bytes([1]) + bytes(NONCE_BYTES)))
    with pytest.raises(MalformedRequest, match="not offered"):
        CallerSide(ClusterSecrets(SECRET), b"c" * NONCE_BYTES, b"x").prove(Cursor(bytes([1]) + bytes(NONCE_BYTES)))


def test_nodes_without_a_common_version_part() -> None:
    _, store = sides()
    too_new = bytes([messages.NEWEST_VERSION + 1, messages.NEWEST_VERSION + 5]) + bytes(NONCE_BYTES)
    with pytest.raises(NoCommonVersion, match="are spoken here"):
        store.answer(Cursor(too_new))
    newer = bytes([messages.OLDEST_VERSION, messages.NEWEST_VERSION + 5]) + bytes(NONCE_BYTES)
    assert store.answer(Cursor(newer))[0] == messages.NEWEST_VERSION
    caller, _ = sides()
    with pytest.raises(MalformedRequest, match="not offered"):
        caller.prove(Cursor(bytes([messages.NEWEST_VERSION + 1]) + bytes(NONCE_BYTES)))


def test_a_short_secret_is_no_secret() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        CallerSide(ClusterSecrets(b"short"), b"c" * NONCE_BYTES)
    with pytest.raises(ValueError, match="at least 16 bytes"):
        StoreSide(ClusterSecrets(b"short"), b"c" * NONCE_BYTES)
