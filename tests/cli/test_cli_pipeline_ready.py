"""`headwater pipeline ready`: what is listed can be printed, copied and checked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.pipelines.spec.check import load
from headwater.pipelines.templates.catalog import TemplateError, pipeline_template, pipeline_templates

NAMES = [
    *("activity_reports", "archive", "candles", "changes_to_table"),
    *("ecommerce", "metrics_alerts", "notifications", "reshape"),
]


def headwater(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headwater.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", NAMES)
def test_every_ready_pipeline_has_no_mistakes_and_nothing_unused(name: str, tmp_path: Path) -> None:
    pipeline = pipeline_template(name)
    assert pipeline.summary.endswith(".") and len(pipeline.summary) > 40
    file, *_ = pipeline.copy_to(tmp_path)
    graph = load(file)
    assert (graph.pipeline.name, graph.unused) == (name, ())
    with pytest.raises(TemplateError, match=rf"{name}\.toml exists already"):
        pipeline.copy_to(tmp_path)


def test_ready_pipelines_are_listed_printed_and_copied(tmp_path: Path) -> None:
    assert [each.name for each in pipeline_templates()] == NAMES
    listed = headwater("pipeline", "ready", "--json")
    assert [row["pipeline"] for row in json.loads(listed.stdout)] == NAMES
    assert headwater("pipeline", "ready", "ecommerce").stdout.strip() == pipeline_template("ecommerce").text.strip()
    copied = headwater("pipeline", "ready", "changes-to-table", "--to", str(tmp_path / "new"))
    assert copied.stdout.splitlines() == [
        str(tmp_path / "new" / f"changes_to_table.{suffix}") for suffix in ("toml", "sql")
    ]
    assert f"headwater pipeline run {tmp_path}/new/changes_to_table.toml" in copied.stderr
    assert (tmp_path / "new" / "changes_to_table.sql").read_text().startswith("create table")


def test_mistakes_say_what_to_do(tmp_path: Path) -> None:
    unknown = headwater("pipeline", "ready", "ecomerce")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "headwater: There is no ready pipeline ecomerce. Did you mean ecommerce?\n",
    )
    nothing = headwater("pipeline", "ready", "--to", str(tmp_path))
    assert nothing.returncode == 2 and "needs the name of a pipeline" in nothing.stderr
    (tmp_path / "file").write_text("")
    refused = headwater("pipeline", "ready", "archive", "--to", str(tmp_path / "file" / "below"))
    assert refused.returncode == 1 and "cannot be written" in refused.stderr
