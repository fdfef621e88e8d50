"""Which topics a pipeline touches."""

from collections.abc import Iterator

from headwater.pipelines.spec.mistakes import Location
from headwater.pipelines.spec.pipeline import Pipeline
from headwater.pipelines.spec.sinks import TopicSink
from headwater.pipelines.spec.sources import TopicSource
from headwater.pipelines.spec.steps import ParseStep


def uses_topics(pipeline: Pipeline) -> bool:
    return (
        any(isinstance(source.does, TopicSource) for source in pipeline.sources)
        or any(isinstance(sink.does, TopicSink) for sink in pipeline.sinks)
        or any(isinstance(step.does, ParseStep) and step.does.dead_letters is not None for step in pipeline.steps)
    )


def topics_read_at(pipeline: Pipeline) -> Iterator[tuple[str, Location]]:
    """Topics of the pipeline's own cluster that must be there, with the line that names them. A source that brings
    its own way to a cluster speaks for itself."""
    for source in pipeline.sources:
        does = source.does
        if isinstance(does, TopicSource) and does.bootstrap is None and not does.options:
            yield does.topic, source.declared.location_of("topic")
