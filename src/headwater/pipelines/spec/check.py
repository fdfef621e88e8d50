"""A pipeline file, read and judged: `check` is what stands between a typing mistake and a minute of Spark's start."""

from pathlib import Path

from headwater.pipelines.spec.graph import Graph, connect
from headwater.pipelines.spec.mistakes import BadPipeline, Location, Mistake
from headwater.pipelines.spec.pipeline import Draft, parts_of
from headwater.pipelines.spec.python_file import read_python
from headwater.pipelines.spec.rules import mistaken_keys, mistaken_names, mistaken_streams
from headwater.pipelines.spec.texts import mistaken_texts
from headwater.pipelines.spec.toml_file import read_toml


def load(file: Path, *, is_spark_next: bool = False) -> Graph:
    """The pipeline of a file. Raises BadPipeline; a file that cannot be read is one, too. `is_spark_next`: Spark judges
    the same SQL right after this, so that a mistake which only Spark can be sure of is left to it."""
    if file.suffix == ".py":
        return check(read_python(file), is_spark_next=is_spark_next)
    if file.suffix == ".toml":
        return check(read_toml(file), is_spark_next=is_spark_next)
    raise BadPipeline([Mistake(Location(str(file)), "A pipeline is a .toml file or a .py module.")])


def check(draft: Draft, *, is_spark_next: bool = False) -> Graph:
    """Raises BadPipeline with all that is wrong: what is wrong with one part keeps no other from being judged."""
    pipeline = draft.pipeline
    mistakes = [*draft.mistakes, *mistaken_names(draft)]
    sections = {part.declared.section for part in parts_of(pipeline)} | {each.section for each in draft.unread}
    if "source" not in sections:
        mistakes.append(_of_file(draft, 'There is no source: [source.NAME] with kind = "topic" makes one.'))
    if "sink" not in sections:
        mistakes.append(_of_file(draft, 'There is no sink: [sink.NAME] with kind = "console" prints the rows.'))
    for part in parts_of(pipeline):
        mistakes += mistaken_keys(part, pipeline)
    graph, unconnected = connect(draft)
    mistakes += unconnected
    mistakes += mistaken_streams(graph)
    mistakes += mistaken_texts(draft, graph)
    if any(mistake.is_sure for mistake in mistakes) or (mistakes and not is_spark_next):
        raise BadPipeline(mistakes)
    return graph


def _of_file(draft: Draft, what: str) -> Mistake:
    return Mistake(Location(str(draft.pipeline.file)), what)
