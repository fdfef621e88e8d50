"""A pipeline file, read and judged: `check` is what stands between a typing mistake and a minute of Spark's start."""

from pathlib import Path

from headwater.pipelines.spec.graph import Graph, connect
from headwater.pipelines.spec.mistakes import BadPipeline, Mistake, Place
from headwater.pipelines.spec.pipeline import Pipeline, parts_of
from headwater.pipelines.spec.python_file import read_python
from headwater.pipelines.spec.rules import mistaken_keys, mistaken_names, mistaken_streams
from headwater.pipelines.spec.toml_file import read_toml


def load(file: Path) -> Graph:
    """The pipeline of a file. Raises BadPipeline; a file that cannot be read is one, too."""
    if file.suffix == ".py":
        return check(read_python(file))
    if file.suffix == ".toml":
        return check(read_toml(file))
    raise BadPipeline([Mistake(Place(str(file)), "A pipeline is a .toml file or a .py module.")])


def check(pipeline: Pipeline) -> Graph:
    """Raises BadPipeline with all that is wrong, as far as the parts can be told apart."""
    mistakes = list(mistaken_names(pipeline))
    if not pipeline.sources:
        mistakes.append(_of_file(pipeline, 'There is no source: [source.NAME] with kind = "topic" makes one.'))
    if not pipeline.sinks:
        mistakes.append(_of_file(pipeline, 'There is no sink: [sink.NAME] with kind = "console" prints the rows.'))
    for part in parts_of(pipeline):
        mistakes += mistaken_keys(part, pipeline)
    try:
        graph = connect(pipeline)
    except BadPipeline as error:
        raise BadPipeline([*mistakes, *error.mistakes]) from None
    mistakes += mistaken_streams(graph)
    if mistakes:
        raise BadPipeline(mistakes)
    return graph


def _of_file(pipeline: Pipeline, what: str) -> Mistake:
    return Mistake(Place(str(pipeline.file)), what)
