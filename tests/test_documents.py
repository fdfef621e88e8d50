"""The documents point to things that exist."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.broker.settings.broker_config import SETTINGS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/headwater"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOR_CONTRIBUTORS = [f"docs/{name}.md" for name in ("replication", "reliability", "formats", "glossary")]
"""They name modules: of the package, or of the repository."""
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS)
def test_every_module_that_is_named_exists(document: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / document).read_text())
    assert named, "the document names modules"
    missing = [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()]
    assert missing == []


def test_every_section_that_code_cites_is_there() -> None:
    sections = {
        name: set(re.findall(r"^## (\d+)\. ", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("docs/replication.md", "docs/reliability.md")
    }
    cited = 0
    for module in (*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")):
        for name, numbers in re.findall(r"(docs/\w+\.md), (\d+(?: and \d+)*)", module.read_text()):
            cited += 1
            assert sections[name].issuperset(numbers.split(" and ")), f"{module}: {name}, {numbers}"
    assert cited, "nothing cites the documents"


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for record in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert f"({record.name})" in index


def test_the_folders_of_the_architecture_are_those_of_the_package() -> None:
    table = re.findall(r"^\| `(\w+)/`.*\| (`.*) \|$", ARCHITECTURE, re.MULTILINE)
    folders = [folder for folder, _ in table]
    assert set(folders) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert_in_order(folders, "Imports point down the layers")
    for folder, start in table:
        assert_named_files_exist(PACKAGE / folder, start)


def test_the_rooms_of_the_architecture_are_those_of_the_broker() -> None:
    table = re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", ARCHITECTURE, re.MULTILINE)
    assert_in_order([room for room, _ in table], "Imports point down the rooms of the broker")
    for room, start in table:
        assert_named_files_exist(PACKAGE / "broker" / room, start)


def test_every_path_of_the_architecture_exists() -> None:
    text = re.sub(r"^\|.*$", "", ARCHITECTURE, flags=re.MULTILINE)
    paths = set(re.findall(r"`(\w+(?:/[\w.]+)+)`", text))
    assert len(paths) > 50, "the walks name their hops"
    found = {
        path for path in paths for name in (path, f"{path}.py") if (PACKAGE / name).exists() or (ROOT / name).exists()
    }
    assert paths - found == set()


def assert_in_order(names: Sequence[str], contract_name: str) -> None:
    """The names are those of the import linter's contract, layer by layer; within one they may be in any order."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == contract_name)
    layers = [layer.split(" | ") for layer in contract["layers"]]
    assert sorted(names) == sorted(name for layer in layers for name in layer)
    for layer in layers:
        assert set(names[: len(layer)]) == set(layer)
        names = names[len(layer) :]


def assert_named_files_exist(folder: Path, text: str) -> None:
    assert [name for name in re.findall(r"`([\w./]+)`", text) if not (folder / name).exists()] == [], folder


def test_the_page_of_settings_names_each_as_what_it_is() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    altered, _, fixed = page.partition("\nFixed, ")
    assert dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|$", altered, re.MULTILINE)) == {
        name: setting.kafka_name for name, setting in SETTINGS.items() if not setting.is_fixed
    }
    assert set(re.findall(r"`(\w+)`[,.]", fixed.partition("\n(Of")[0])) == {
        name for name, setting in SETTINGS.items() if setting.is_fixed
    }
