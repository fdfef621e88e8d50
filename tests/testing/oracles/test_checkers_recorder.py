"""Histories survive threads, files, kills and hostile bytes, and the command says what is wrong with them."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.testing.oracles.checkers import (
    BrokenHistory,
    CallOutcome,
    History,
    HistoryFull,
    Recorder,
    ViolationKind,
    check,
)
from headwater.testing.oracles.checkers.__main__ import main
from headwater.testing.oracles.checkers.edn import edn
from headwater.testing.oracles.checkers.events import FinalRead, Polled, SendBegan, SendEnded
from headwater.testing.oracles.checkers.json_lines import (
    MAX_LINE_BYTES,
    MAX_RECORDS_PER_EVENT,
    MAX_TEXT_CHARS,
    Stamped,
    decode,
    encode,
)
from tests.testing.oracles.checked_runs import COMMITTED, TOPIC, Run
from tests.testing.oracles.simulated_run import SimulatedRun

# The recorder


def test_threads_record_into_one_history() -> None:
    recorder = Recorder()
    offsets = count()

    def produce(producer: int) -> None:
        for number in range(200):
            value = f"{producer}:{number}"
            recorder.send(f"p{producer}", TOPIC, value, partition=producer)
            recorder.acknowledged(TOPIC, value, producer, next(offsets))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(produce, range(8)))
    assert len(list(recorder.history())) == 8 * 200 * 2
    assert check(recorder.history()) == []


def test_a_full_recorder_takes_nothing_more_and_gives_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for recorder in (Recorder(max_events=2), Recorder(path, max_events=2)):
        with recorder:
            recorder.send("p", TOPIC, "v0")
            recorder.send("p", TOPIC, "v1")
            for _ in range(3):
                with pytest.raises(HistoryFull, match="more than 2 events"):
                    recorder.send("p", TOPIC, "v2")
            with pytest.raises(HistoryFull):
                recorder.history()
    with pytest.raises(BrokenHistory, match="stopped here, at its limit of 2 events"):
        check(History.read(path))


def test_long_polls_and_final_reads_are_noted_in_pieces() -> None:
    records = [(offset, f"v{offset}") for offset in range(2 * MAX_RECORDS_PER_EVENT + 1)]
    recorder = Recorder()
    for _, value in records:
        recorder.send("p", TOPIC, value)
    place = (TOPIC, 0)
    recorder.polled("c", COMMITTED, [(*place, *each) for each in records], before={place: 0}, after={place: 20_005})
    recorder.final_read(COMMITTED, *place, records, end=20_005)
    *_, first, _, last, _, _, end = recorder.history()
    assert isinstance(first, Polled) and isinstance(last, Polled) and isinstance(end, FinalRead)
    assert (first.before, first.after, last.before, last.after) == (0, None, None, 20_005)
    assert (end.start, end.end) == (20_000, 20_005)
    assert check(recorder.history()) == []


def test_bytes_that_are_no_text_and_offsets_that_clients_do_not_know_are_taken() -> None:
    recorder = Recorder()
    recorder.send("p", TOPIC, b"\xff\x00", key=b"\xfe")
    recorder.acknowledged(TOPIC, b"\xff\x00", 0, -1001)
    recorder.assigned("c", {(TOPIC, 0): -1001})
    recorder.polled("c", COMMITTED, [(TOPIC, 0, 3, b"\xff\x00")], before={(TOPIC, 0): -1001})
    assert check(recorder.history()) == []


def test_a_value_that_is_too_long_to_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="record a digest"):
        Recorder().send("p", TOPIC, "x" * (MAX_TEXT_CHARS + 1))


def test_a_recorder_never_writes_into_another_ones_file(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").touch()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "run.jsonl")


def test_what_was_noted_before_a_kill_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    program = (
        "import os, signal, sys\n"
        "from headwater.testing.oracles.checkers import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "transaction = recorder.begin('p')\n"
        "recorder.send('p', 'orders', 'v0', partition=0, transaction=transaction)\n"
        "recorder.commit(transaction)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(History.read(path))) == 3


# Files


@given(st.integers(0, (1 << 32) - 1))
def test_a_history_comes_back_from_its_file_as_it_was(seed: int) -> None:
    for number, event in enumerate(SimulatedRun(seed, steps=20).history()):
        assert decode(encode(Stamped(number, event))) == Stamped(number, event)


@given(st.text(max_size=50))
def test_any_text_comes_back_from_the_file_as_it_was(text: str) -> None:
    event = SendBegan(
        producer=text, topic=text, value=text, partition=3, transaction=text, key=text, is_idempotent=False
    )
    assert decode(encode(Stamped(1, event))) == Stamped(1, event)


def test_a_file_can_be_walked_more_than_once(tmp_path: Path) -> None:
    history = SimulatedRun(1).history()
    history.write(tmp_path / "run.jsonl")
    read = History.read(tmp_path / "run.jsonl")
    assert list(read) == list(history)
    assert list(read) == list(history)


def test_the_files_of_several_processes_are_put_in_order_by_time(tmp_path: Path) -> None:
    clock = count(100)
    with (
        Recorder(tmp_path / "a", clock_ns=clock.__next__) as writer,
        Recorder(tmp_path / "b", clock_ns=clock.__next__) as reader,
    ):
        for offset in range(3):
            writer.send("p", TOPIC, f"v{offset}", partition=0)
            reader.polled("c", COMMITTED, [(TOPIC, 0, offset, f"v{offset}")])
    assert check(History.read(tmp_path / "b", tmp_path / "a")) == []
    assert {each.kind for each in check([*reader.history(), *writer.history()])} == {ViolationKind.FUTURE_READ}


def test_files_without_times_cannot_be_put_in_order(tmp_path: Path) -> None:
    line = b'{"event":"send_began","producer":"p","topic":"t","value":"%s"}\n'
    (tmp_path / "a").write_bytes(line % b"v0")
    (tmp_path / "b").write_bytes(line % b"v1")
    assert check(History.read(tmp_path / "a")) == []
    with pytest.raises(BrokenHistory, match="needs an at_ns"):
        check(History.read(tmp_path / "a", tmp_path / "b"))


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    whole = encode(Stamped(1, SendBegan(producer="p", topic=TOPIC, value="v0")))
    ended = encode(Stamped(2, SendEnded(TOPIC, "v0", CallOutcome.OK, 0, 0)))
    for length in range(len(ended) - 1):
        (tmp_path / "run").write_bytes(whole + ended[:length])
        assert len(list(History.read(tmp_path / "run"))) == 1


def test_a_line_in_the_middle_that_was_cut_short_breaks_the_history(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(
        b'{"event":"send\n' + encode(Stamped(1, SendBegan(producer="p", topic=TOPIC, value="v0")))
    )
    with pytest.raises(BrokenHistory, match=r"run:1: this is not JSON"):
        list(History.read(tmp_path / "run"))


# Hostile bytes

SEND = '{"event":"send_began","producer":"p","topic":"t","value":"v"%s}'
READ = '{"event":"polled","consumer":"c","isolation":"read_committed","partition":["t",0],"records":%s}'


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[]", "must be a JSON object"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ("{}", "no event None"),
        ('{"event":["send_began"]}', "no event"),
        ('{"event":"send_began"}', "needs producer, topic, value"),
        (SEND % ',"colour":1', "no field 'colour'"),
        (SEND % ',"partition":-1', "partition is -1: it must be a whole number"),
        (SEND % ',"partition":true', "whole number"),
        (SEND % ',"partition":1e400', "whole number"),
        (SEND % f',"partition":{1 << 63}', "whole number"),
        (SEND % ',"key":7', "text of at most 1024"),
        (SEND % f',"key":"{"x" * 2_000}"', "text of at most 1024"),
        (SEND % ',"at_ns":"soon"', "at_ns is 'soon'"),
        (SEND % ',"is_idempotent":1', "true or false"),
        ('{"event":"send_ended","topic":"t","value":"v","outcome":"perhaps"}', "'perhaps' is not a valid CallOutcome"),
        (READ % '{"0":"v"}', "list of at most 10000"),
        (READ % "[[0]]", "pairs"),
        (READ % '["0v"]', "pairs"),
        (READ % '[["0","v"]]', "whole number"),
        (READ % ("[" + ",".join(['[0,"v"]'] * 10_001) + "]"), "list of at most 10000"),
    ],
)
def test_a_line_that_is_not_right_is_refused_with_the_reason(line: str, complaint: str) -> None:
    with pytest.raises(BrokenHistory, match=complaint):
        decode(line.encode())


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_break_the_history(line: bytes) -> None:
    with pytest.raises(BrokenHistory):
        decode(line)


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with path.open("wb") as file:
        file.truncate(MAX_LINE_BYTES * 64)  # zeros that take no space
    with pytest.raises(BrokenHistory, match="longer than"):
        list(History.read(path))


# The command


def _written(run: Recorder, path: Path) -> str:
    run.history().write(path)
    return str(path)


def test_the_command_is_quiet_about_a_good_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.sent("v0", 0)
    assert main([_written(run, tmp_path / "run.jsonl")]) == 0
    assert capsys.readouterr().out == "No violations.\n"


def test_the_command_tells_what_is_wrong_and_shows_the_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    run.sent("v0", 0)
    run.given([(5, "v0")])
    assert main([_written(run, tmp_path / "run.jsonl")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("inconsistent offset: 'v0' in orders-0")
    assert lines[1].startswith('    1: {"event": "send_began", "producer": "p"')
    assert lines[-1] == "1 violation."


def test_the_command_has_no_verdict_on_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.jsonl").write_text("nonsense\n")
    assert main([str(tmp_path / "run.jsonl")]) == 2
    assert main([str(tmp_path / "missing.jsonl")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "run.jsonl:1: this is not JSON" in first
    assert "missing.jsonl" in second


def test_names_in_a_history_cannot_speak_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Recorder()
    run.polled("\x1b[2J\ud800", COMMITTED, [("\x1b]0;owned\x07", 0, 0, "v\n")])
    assert main([_written(run, tmp_path / "run.jsonl")]) == 1
    out = capsys.readouterr().out
    assert all(each.isprintable() for line in out.splitlines() for each in line)


def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    run = Run()
    run.given([(0, "ghost")])
    command = [sys.executable, "-m", "headwater.testing.oracles.checkers", _written(run, tmp_path / "run.jsonl")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("phantom: read_committed consumer c saw 'ghost'")


# EDN


def test_events_are_exported_as_edn(tmp_path: Path) -> None:
    assert edn(SendBegan(producer="p", topic=TOPIC, value='a "value"', partition=0, is_idempotent=False)) == (
        '{:event :send-began, :producer "p", :topic "orders", :value "a \\"value\\"", :partition 0, '
        ":is-idempotent false}"
    )
    run = Run()
    run.sent("v0", 0)
    run.given([(0, "v0")])
    out = tmp_path / "run.edn"
    assert main([_written(run, tmp_path / "run.jsonl"), "--edn", str(out)]) == 0
    assert out.read_text().splitlines()[2] == (
        '{:event :polled, :consumer "c", :isolation :read-committed, :partition ["orders" 0], :records [[0 "v0"]]}'
    )


def test_the_format_of_the_file_does_not_change_by_accident() -> None:
    event = SendBegan(producer="p", topic="orders", value="v1", partition=0)
    assert json.loads(encode(Stamped(81, event))) == {
        "event": "send_began",
        "producer": "p",
        "topic": "orders",
        "value": "v1",
        "partition": 0,
        "at_ns": 81,
    }
