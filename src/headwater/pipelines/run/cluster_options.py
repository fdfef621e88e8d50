"""How the headwater source and sink reach the cluster of a topic: the `kafka.…` options that a run adds to a file's."""

from collections.abc import Mapping

from headwater.client.security_options import SECURITY_OPTIONS
from headwater.pipelines.client.config import PREFIX
from headwater.pipelines.spec.sinks import TopicSink
from headwater.pipelines.spec.sources import TopicSource


def cluster_options(topic: TopicSource | TopicSink, bootstrap: str, security: Mapping[str, str]) -> dict[str, str]:
    """`bootstrap` and `security` are of the pipeline's cluster. A topic of another cluster is not shown its password,
    and one with options of its own for TLS or a login has no others."""
    own = {name.lower().removeprefix(PREFIX) for name in topic.options}
    is_elsewhere = topic.bootstrap is not None or "bootstrap.servers" in own
    added = {} if is_elsewhere or own & SECURITY_OPTIONS else security
    return {
        "kafka.bootstrap.servers": topic.bootstrap or bootstrap,
        **{f"{PREFIX}{name}": value for name, value in added.items()},
    }
