"""The pipelines that the documentation shows are good ones."""

import re
import sys
from pathlib import Path

import pytest

from headwater.pipelines.spec.check import load
from headwater.pipelines.spec.kinds import KINDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipelines.md"


def shown(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(text)


def test_the_file_that_is_shown_is_good(tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(shown("toml"))
    graph = load(tmp_path / "orders.toml")
    assert [step.name for step in graph.steps_in_order] == ["valid", "per_minute", "large"]
    assert graph.unused == ()


def test_the_module_that_is_shown_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "big_orders.py").write_text(shown("python"))
    assert load(tmp_path / "big_orders.py").reads == {"valid": ("orders",), "big": ("valid",), "alert": ("big",)}
    del sys.modules["big_orders"]


def test_every_kind_is_named() -> None:
    text = DOCUMENT.read_text()
    for section, kinds in KINDS.items():
        (row,) = re.findall(rf"^\| {section}s \|(.*)$", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == set(kinds), section
