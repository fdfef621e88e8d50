"""/v1/topics: topics listed, described, created, changed and deleted."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.cluster.broker_pages import PageReader
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.http.problems import Problem, bad_request
from headwater.gateway.kafka.admin import DEFAULT, Admin, is_internal
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.topics.bodies import ConfigValue, NewTopic, Segments, Topic, TopicChange, Topics, TopicsQuery
from headwater.gateway.topics.descriptions import describe, summaries

PATH = "/v1/topics"
ONE = "/v1/topics/{topic}"
MAX_SETTINGS = 200


class TopicRoutes:
    def __init__(self, admin: Admin, topics: KnownTopics, pages: PageReader) -> None:
        self._admin = admin
        self._topics = topics
        self._pages = pages

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", PATH, self.list_topics, "List topics with what they hold",
                query=TopicsQuery, answers={200: Topics}, problems=(502,),
            ),
            Operation(
                "POST", PATH, self.create_topic, "Create a topic",
                body=NewTopic, answers={201: Topic}, problems=(404, 409, 502),
            ),
            Operation(
                "GET", ONE, self.describe_topic, "A topic's partitions and settings",
                answers={200: Topic}, problems=(404, 502),
            ),
            Operation(
                "PATCH", ONE, self.alter_topic, "Change settings, or add partitions",
                body=TopicChange, answers={200: Topic}, problems=(404, 502),
            ),
            Operation(
                "DELETE", ONE, self.delete_topic, "Delete a topic and its records",
                answers={204: None}, problems=(404, 502),
            ),
            Operation(
                "GET", ONE + "/segments", self.list_segments, "The segments of a topic and where they lie",
                answers={200: Segments}, problems=(404, 502),
            ),
        ]  # fmt: skip

    async def list_topics(self, request: Request, query: TopicsQuery) -> Response:
        return answer(Topics(await summaries(self._admin, internal=query.internal)))

    async def create_topic(self, request: Request, body: NewTopic) -> Response:
        if is_internal(body.name):
            raise bad_request("Names that begin with __ are the cluster's own.")
        _check_count(body.config)
        config = {name: as_text(value) for name, value in body.config.items()}
        replicas = body.replication_factor or DEFAULT
        await self._admin.create_topic(body.name, body.partitions or DEFAULT, replicas, config)
        await self._topics.refresh()
        return answer(await describe(self._admin, body.name), 201, {"Location": f"{PATH}/{body.name}"})

    async def describe_topic(self, request: Request) -> Response:
        return answer(await describe(self._admin, request.path_params["topic"]))

    async def alter_topic(self, request: Request, body: TopicChange) -> Response:
        topic = await self._changeable_topic(request)
        _check_count(body.config)
        if body.config:
            changes = {name: None if value is None else as_text(value) for name, value in body.config.items()}
            await self._admin.alter_config(topic, changes)
        if body.partitions is not None and body.partitions != await self._topics.partitions_of(topic):
            await self._admin.add_partitions(topic, body.partitions)
            await self._topics.refresh()
        return answer(await describe(self._admin, topic))

    async def delete_topic(self, request: Request) -> Response:
        topic = await self._changeable_topic(request)
        self._topics.forget(topic)
        await self._admin.delete_topic(topic)
        await self._topics.refresh()
        return Response(status_code=204)

    async def list_segments(self, request: Request) -> Response:
        topic: str = request.path_params["topic"]
        await self._topics.partitions_of(topic)
        page = await self._pages.json("segments", topic=topic)
        if page is None:
            raise Problem(
                404,
                "Segments unknown",
                "No broker tells this gateway about them: start it with --metrics and the metrics address of one.",
            )
        return answer(page)

    async def _changeable_topic(self, request: Request) -> str:
        """The topic in the path. Raises TopicNotFound, and Problem for the cluster's own topics."""
        topic: str = request.path_params["topic"]
        await self._topics.partitions_of(topic)
        if is_internal(topic):
            raise Problem(403, "Forbidden", f"{topic} belongs to the cluster itself.")
        return topic


def as_text(value: ConfigValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _check_count(config: Mapping[str, object]) -> None:
    if len(config) > MAX_SETTINGS:
        raise bad_request(f"A topic has no more than {MAX_SETTINGS} settings.")
