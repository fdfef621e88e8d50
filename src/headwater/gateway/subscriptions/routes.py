"""/v1/subscriptions: streams and queues, made, read and acknowledged over HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.context import Context
from headwater.gateway.kafka.brokers import Refused
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.kafka.group_configs import problem_of
from headwater.gateway.openapi import answer, operation
from headwater.gateway.subscriptions import bodies as shapes
from headwater.gateway.subscriptions.serving import Serving

P = ParamSpec("P")
PATH = "/v1/subscriptions"
ONE = PATH + "/{name}"
NAMES = {"name": {"type": "string", "pattern": shapes.NAME_PATTERN}}
MAX_ACK_BODY_BYTES = 4 * 1024 * 1024


@asynccontextmanager
async def running(context: Context) -> AsyncIterator[None]:
    context.subscriptions = Serving(context)
    async with context.subscriptions.running():
        yield


def routes(context: Context) -> list[BaseRoute]:
    def name_of(request: Request) -> str:
        name: str = request.path_params["name"]
        return name

    async def list_subscriptions(request: Request) -> Response:
        return answer(shapes.Subscriptions(await context.subscriptions.all()))

    async def create_subscription(request: Request, body: shapes.SubscriptionIn) -> Response:
        return answer(await context.subscriptions.create(body), 201)

    async def get_subscription(request: Request) -> Response:
        return answer(await context.subscriptions.describe(name_of(request)))

    async def change_subscription(request: Request, body: shapes.SubscriptionChange) -> Response:
        return answer(await context.subscriptions.change(name_of(request), body))

    async def delete_subscription(request: Request) -> Response:
        await context.subscriptions.delete(name_of(request))
        return Response(status_code=204)

    async def pull(request: Request, body: shapes.PullIn) -> Response:
        with context.budget.hold(body.max_bytes):
            return answer(shapes.Pulled(await context.subscriptions.pull(name_of(request), body, request)))

    async def acknowledge(request: Request, body: shapes.AckIn) -> Response:
        return answer(shapes.AckResults(await context.subscriptions.acknowledge(name_of(request), body)))

    async def commit(request: Request, body: shapes.CommitIn) -> Response:
        await context.subscriptions.commit(name_of(request), body)
        return Response(status_code=204)

    async def dead_letters(request: Request, query: shapes.LettersQuery) -> Response:
        return answer(await context.subscriptions.dead_letters(name_of(request), query.limit))

    async def redrive(request: Request, body: shapes.RedriveIn) -> Response:
        return answer(await context.subscriptions.redrive(name_of(request), body))

    def declared(
        method: str, path: str, handler: Callable[..., Awaitable[Response]], summary: str, /, **more: Any
    ) -> BaseRoute:
        if path != PATH:
            more["path_schemas"] = NAMES
        return operation(method, path, _with_problems(handler), summary, context, **more)

    one, known = shapes.Subscription, (404, 502)
    return [
        declared("GET", PATH, list_subscriptions, "List subscriptions", answers={200: shapes.Subscriptions}),
        declared(
            "POST",
            PATH,
            create_subscription,
            "Subscribe to a topic",
            body=shapes.SubscriptionIn,
            answers={201: one},
            problems=(404, 409, 415, 502),
        ),
        declared("GET", ONE, get_subscription, "Describe a subscription", answers={200: one}, problems=known),
        declared(
            "PATCH",
            ONE,
            change_subscription,
            "Change a subscription",
            body=shapes.SubscriptionChange,
            answers={200: one},
            problems=(*known, 415),
        ),
        declared("DELETE", ONE, delete_subscription, "Unsubscribe", answers={204: None}, problems=(*known, 409)),
        declared(
            "POST",
            f"{ONE}/pull",
            pull,
            "Take records, waiting for them if asked to",
            body=shapes.PullIn,
            is_body_required=False,
            answers={200: shapes.Pulled},
            problems=(*known, 409, 415),
        ),
        declared(
            "POST",
            f"{ONE}/ack",
            acknowledge,
            "Accept, release, reject records of a queue, or keep them longer",
            body=shapes.AckIn,
            max_body_bytes=MAX_ACK_BODY_BYTES,
            answers={200: shapes.AckResults},
            problems=(*known, 409, 413, 415),
        ),
        declared(
            "POST",
            f"{ONE}/commit",
            commit,
            "Say how far a stream is read",
            body=shapes.CommitIn,
            answers={204: None},
            problems=(*known, 409, 413, 415),
        ),
        declared(
            "GET",
            f"{ONE}/dead-letters",
            dead_letters,
            "The newest records that a queue gave up on",
            query=shapes.LettersQuery,
            answers={200: shapes.Letters},
            problems=(*known, 409, 414),
        ),
        declared(
            "POST",
            f"{ONE}/redrive",
            redrive,
            "Send dead letters back, each once",
            body=shapes.RedriveIn,
            is_body_required=False,
            answers={200: shapes.Redriven},
            problems=(*known, 409, 415),
        ),
    ]


def _with_problems(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    async def guarded(request: Request, **given: Any) -> Response:
        try:
            return await handler(request, **given)
        except (Refused, BrokerGone) as error:
            raise problem_of(error) from None

    guarded.__name__ = handler.__name__
    return guarded
