"""The documents point to things that exist."""

import re
from pathlib import Path

import pytest

from headwater.broker.settings.broker_config import SETTINGS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert f"({record.name})" in index


def test_the_folders_of_the_architecture_are_those_of_the_package() -> None:
    table = re.findall(r"^\| `(\w+)/`.*\| (`.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    package = ROOT / "src/headwater"
    assert {folder for folder, _ in table} == {path.parent.name for path in package.glob("*/__init__.py")}
    for folder, start in table:
        for name in re.findall(r"`([\w.]+)`", start):
            assert (package / folder / name).exists(), f"{folder}/{name}"


def test_the_page_of_settings_names_each_as_what_it_is() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    altered, _, fixed = page.partition("\nFixed, ")
    assert dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|$", altered, re.MULTILINE)) == {
        name: setting.kafka_name for name, setting in SETTINGS.items() if not setting.is_fixed
    }
    assert set(re.findall(r"`(\w+)`[,.]", fixed.partition("\n(Of")[0])) == {
        name for name, setting in SETTINGS.items() if setting.is_fixed
    }
