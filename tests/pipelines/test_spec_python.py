"""Pipelines declared by a Python module."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.mistakes import BadPipeline
from headwater.pipelines.spec.sinks import DecoratedSink
from headwater.pipelines.spec.sources import TopicSource
from headwater.pipelines.spec.starts import EARLIEST
from headwater.pipelines.spec.triggers import AVAILABLE_NOW

MODULE = """\
from headwater.pipelines.declare import pipeline, sink, source, step

pipeline("big-orders", trigger="available_now")
source("orders", kind="topic", topic="orders", from_="earliest")

@source
def products(spark):
    return spark.read.parquet("products")

@step
def big(orders, products):
    return orders.join(products, "id")

@sink(input="big", mode="update")
def alert(batch, batch_id):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "big_orders_pipeline.py"
    file.write_text(MODULE)
    yield file
    sys.modules.pop(file.stem, None)


def mistakes(file: Path) -> list[tuple[int, str]]:
    with pytest.raises(BadPipeline) as caught:
        load(file)
    return [(mistake.location.line, mistake.what) for mistake in caught.value.mistakes]


def test_a_module_declares_what_a_file_would(module: Path) -> None:
    graph = load(module)
    pipeline = graph.pipeline
    assert (pipeline.name, pipeline.settings.trigger) == ("big-orders", AVAILABLE_NOW)
    assert pipeline.sources[0].does == TopicSource(topic="orders", start=EARLIEST)
    assert graph.reads == {"big": ("orders", "products"), "alert": ("big",)}
    assert graph.is_stream == {"orders": True, "products": None, "big": True}
    (sink,) = pipeline.sinks
    assert isinstance(sink.does, DecoratedSink) and sink.delivery.mode == "update"


def test_mistakes_have_the_line_of_their_call(module: Path) -> None:
    module.write_text(MODULE.replace('topic="orders"', 'topc="orders"'))
    assert mistakes(module) == [
        (4, "source orders has no key topc. Did you mean topic?"),
        (4, "source orders lacks topic: the topic to read."),
    ]
    module.write_text(MODULE.replace("def big(orders, products)", "def big(orders, product)"))
    assert mistakes(module) == [(10, "step big reads product, which is no source or step. Did you mean products?")]


def test_what_the_module_raises_is_told_with_its_line(module: Path) -> None:
    module.write_text(MODULE + "\n1 / 0\n")
    assert mistakes(module) == [(MODULE.count("\n") + 2, "ZeroDivisionError: division by zero")]
    module.write_text("def (:\n")
    assert mistakes(module)[0][0] == 1


def test_imported_elsewhere_a_module_declares_nothing(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    imported = __import__(module.stem)
    assert imported.big.__name__ == "big"


def test_a_module_may_not_hide_another(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(MODULE)
    assert mistakes(tmp_path / "json.py") == [(0, "Another module is called json: rename the file.")]
