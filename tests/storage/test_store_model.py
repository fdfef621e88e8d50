"""Random calls and restarts, held against the simplest thing that could be right."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.model.replica import CorruptReplica, Durability, Fenced, OutOfSequence, UnknownSegment
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import KIB, SMALL, batch, open_store, segment, spans

OPTIONS = dataclasses.replace(SMALL, journal_file_bytes=4 * KIB, journal_files=2, block_bytes=700, open_files=2)
NUMBERS = st.integers(1, 4)


T = TypeVar("T")


@dataclass
class Model:
    durability: Durability
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    is_fenced: bool = False
    sealed_end: int | None = None
    instance: int = 0
    is_tombstone: bool = False
    """It was fenced before anybody created it, and is in doubt for ever."""

    @property
    def takes_appends(self) -> bool:
        return not self.is_fenced and self.sealed_end is None

    def read(self, offset: int, limit: int) -> list[bytes]:
        return [row for row in self.batches if spans(row)[0][1] > offset and spans(row)[0][1] <= limit]


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.files = MemoryFiles()
        self.models: dict[int, Model] = {}
        self.store: SegmentStore = self.loop.run_until_complete(open_store(self.files, OPTIONS))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.store.close())
            self.loop.close()

    def call(self, coroutine: Awaitable[T]) -> T:
        return self.loop.run_until_complete(coroutine)

    @rule(number=NUMBERS, durability=st.sampled_from(Durability), header=st.binary(max_size=200))
    def create(self, number: int, durability: Durability, header: bytes) -> None:
        call = self.store.create(segment(number), "p", 0, 1, header, durability)
        model = self.models.get(number)
        if model is None:
            self.call(call)
            state = self.store.replica(segment(number))
            assert state is not None
            self.models[number] = Model(durability, instance=state.instance)
            assert state.header == header
            return
        with contextlib.suppress(Fenced, OutOfSequence):
            self.call(call)

    @rule(
        number=NUMBERS,
        sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(61, 900), st.integers(0, 3)), min_size=1, max_size=4),
    )
    def append(self, number: int, sizes: list[tuple[int, int, int]]) -> None:
        model = self.models.get(number)
        first = model.end if model is not None else 0
        rows, end = [], first
        for count, size_bytes, hole in sizes:
            rows.append(batch(end + hole, count=count, size_bytes=size_bytes, timestamp=end))
            end += hole + count
        call = self.store.append(segment(number), first, end, first, rows)
        if model is None or not model.takes_appends:
            with pytest.raises((UnknownSegment, Fenced)):
                self.call(call)
            return
        assert self.call(call) == end
        model.batches += rows
        model.end = end

    @rule(number=NUMBERS, back=st.integers(1, 6))
    def resend(self, number: int, back: int) -> None:
        model = self.models.get(number)
        if model is None or not model.takes_appends or not model.batches:
            return
        rows = model.batches[-back:]
        first = spans(rows[0])[0][0]
        more = batch(model.end, size_bytes=100)
        end = model.end + 1
        assert self.call(self.store.append(segment(number), first, end, first, [*rows, more])) == end
        model.batches.append(more)
        model.end = end

    @rule(number=NUMBERS, gap=st.integers(1, 3))
    def append_behind_a_gap(self, number: int, gap: int) -> None:
        model = self.models.get(number)
        if model is None or not model.takes_appends:
            return
        first = model.end + gap
        with pytest.raises(OutOfSequence):
            self.call(self.store.append(segment(number), first, first + 1, 0, [batch(first)]))

    @rule(number=NUMBERS)
    def fence(self, number: int) -> None:
        state = self.call(self.store.fence(segment(number)))
        model = self.models.setdefault(number, Model(Durability.SYNC, is_tombstone=True))
        model.is_fenced = True
        model.instance = state.instance
        assert (state.end, state.is_fenced) == (model.end, True)

    @rule(number=NUMBERS, data=st.data())
    def seal(self, number: int, data: st.DataObject) -> None:
        model = self.models.get(number)
        if model is None or model.sealed_end is not None:
            return
        stops = [0, *(spans(row)[0][1] for row in model.batches)]
        end = data.draw(st.sampled_from(stops))
        sealed = self.call(self.store.seal(segment(number), end))
        model.batches = [row for row in model.batches if spans(row)[0][1] <= end]
        model.end = model.sealed_end = end
        assert sealed.size_bytes == sum(map(len, model.batches))

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        model = self.models.pop(number, None)
        self.call(self.store.delete(segment(number), model.instance if model is not None else 1))
        assert self.store.replica(segment(number)) is None

    @rule(number=NUMBERS, data=st.data(), max_bytes=st.integers(1, 4000))
    def read(self, number: int, data: st.DataObject, max_bytes: int) -> None:
        model = self.models.get(number)
        if model is None:
            return
        offset = data.draw(st.integers(0, model.end + 1))
        limit = data.draw(st.integers(offset, model.end + 2))
        call = self.store.read(segment(number), offset, limit, max_bytes)
        if model.is_tombstone and limit > model.end:
            with pytest.raises(CorruptReplica):
                self.call(call)
            return
        found = bytes(self.call(call))
        expected = model.read(offset, limit) if offset < min(limit, model.end) else []
        assert b"".join(expected).startswith(found)
        assert bool(found) == bool(expected)
        if expected:
            assert len(found) <= max(max_bytes, len(expected[0]))

    @rule(number=NUMBERS, timestamp=st.integers(0, 60))
    def find(self, number: int, timestamp: int) -> None:
        model = self.models.get(number)
        if model is None:
            return
        stamps = [(spans(row)[0][0], int.from_bytes(row[35:43], "big")) for row in model.batches]
        expected = next((base for base, stamp in stamps if stamp >= timestamp), None)
        assert self.call(self.store.find_timestamp(segment(number), timestamp)) == expected

    @rule()
    def restart(self) -> None:
        self.call(self.store.close())
        self.store = self.call(open_store(self.files, OPTIONS))

    @rule()
    def kill(self) -> None:
        files = self.files.killed()
        self.call(self.store.close())
        self.files = files
        self.store = self.call(open_store(self.files, OPTIONS))

    @rule()
    @precondition(lambda self: all(model.durability is Durability.SYNC for model in self.models.values()))
    def lose_power(self) -> None:
        files = self.files.crash_point().nothing_more()
        self.call(self.store.close())
        self.files = files
        self.store = self.call(open_store(self.files, OPTIONS))

    @invariant()
    def the_inventory_is_that_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        states = {state.segment: state for state in self.store.replicas()}
        assert set(states) == {segment(number) for number in self.models}
        for number, model in self.models.items():
            state = states[segment(number)]
            size_bytes = sum(map(len, model.batches))
            assert state.size_bytes == size_bytes
            assert (state.is_fenced, state.is_sealed) == (model.is_fenced, model.sealed_end is not None)
            assert state.lac <= state.end
            if model.durability is Durability.SYNC:
                assert state.end == model.end


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
