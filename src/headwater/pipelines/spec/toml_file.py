"""The pipeline file in TOML:

    name = "orders-per-minute"
    trigger = "1s"

    [source.orders]
    kind = "topic"
    topic = "orders"

    [step.valid]
    kind = "parse"
    input = "orders"
    format = "json"
    schema = "id string not null, at timestamp, amount double"
    dead_letters = "orders.bad"

    [sink.show]
    kind = "console"
    input = "valid"

    [spark]
    "spark.sql.shuffle.partitions" = 4

What is not [source.…], [step.…] or [sink.…] is a setting of the pipeline (`pipeline.Settings`).
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.pipelines.spec.declarations import Declaration, FileSection
from headwater.pipelines.spec.mistakes import BadPipeline, Location, Mistake
from headwater.pipelines.spec.pipeline import Draft, read_pipeline
from headwater.pipelines.spec.toml_lines import Lines, key_lines
from headwater.pipelines.spec.toml_lines import Path as KeyPath

MAX_FILE_BYTES = 1024 * 1024
PARTS = (FileSection.SOURCE, FileSection.STEP, FileSection.SINK)

_AT_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")


def read_toml(file: Path) -> Draft:
    """Raises BadPipeline if it is no TOML."""
    text = _text(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPipeline([_syntax(file, str(error), text)]) from None
    except RecursionError:
        raise BadPipeline([Mistake(Location(str(file)), "This is nested too deeply.")]) from None
    lines = key_lines(text)
    declarations = [_declaration(file, FileSection.PIPELINE, "", _settings(values), lines, ())]
    broken: list[tuple[Declaration, Mistake]] = []
    for section in PARTS:
        tables = values.get(section, {})
        if not isinstance(tables, Mapping):
            mistake = Mistake(_location(file, lines, (section,)), f"Write [{section}.NAME] for each {section}.")
            broken.append((Declaration(section, section, {}, mistake.location), mistake))
            continue
        for name, table in tables.items():
            path = (section, name)
            if isinstance(table, Mapping):
                declarations.append(_declaration(file, section, name, table, lines, path))
            else:
                what = f"{section}.{name} is no table: begin with [{section}.NAME] on a line of its own."
                mistake = Mistake(_location(file, lines, path), what)
                broken.append((Declaration(section, name, {}, mistake.location), mistake))
    return read_pipeline(file, declarations, broken)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise BadPipeline([Mistake(Location(str(file)), f"This is larger than {MAX_FILE_BYTES} bytes.")])
        return content.decode().replace("\r\n", "\n")
    except OSError as error:
        raise BadPipeline([Mistake(Location(str(file)), f"It cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadPipeline([Mistake(Location(str(file), line), "This is no UTF-8.")]) from None


def _syntax(file: Path, message: str, text: str) -> Mistake:
    """tomllib names the line in its words."""
    found = _AT_LINE.search(message)
    line = int(found[1]) if found else text.count("\n") + 1
    what = _AT_LINE.sub("", message).replace("(at end of document)", "at the end of the file").strip()
    return Mistake(Location(str(file), line), f"This is no TOML: {what}.")


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in PARTS}


def _declaration(
    file: Path,
    section: FileSection,
    name: str,
    values: Mapping[str, Any],
    lines: Mapping[KeyPath, Lines],
    path: KeyPath,
) -> Declaration:
    known = {key: lines[*path, key] for key in values if (*path, key) in lines}
    for key, value in values.items():  # aggregates.revenue, for what stands in a table of a part
        inner = value if isinstance(value, Mapping) else ()
        known |= {f"{key}.{each}": lines[*path, key, each] for each in inner if (*path, key, each) in lines}
    return Declaration(
        section,
        name,
        values,
        _location(file, lines, path),
        {key: Location(str(file), at.key) for key, at in known.items()},
        {key: Location(str(file), at.value) for key, at in known.items() if at.value != at.key},
    )


def _location(file: Path, lines: Mapping[KeyPath, Lines], path: KeyPath) -> Location:
    return Location(str(file), lines[path].key if path in lines else 0)
