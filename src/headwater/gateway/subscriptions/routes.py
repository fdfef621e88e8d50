"""/v1/subscriptions: streams and queues, made, read and acknowledged over HTTP."""

from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.subscriptions.bodies import (
    NAME_PATTERN,
    AckIn,
    AckResults,
    CommitIn,
    Letters,
    LettersQuery,
    Pulled,
    PullIn,
    RedriveIn,
    Redriven,
    Subscription,
    SubscriptionChange,
    SubscriptionIn,
    Subscriptions,
)
from headwater.gateway.subscriptions.dead_letters import DeadLetterApi
from headwater.gateway.subscriptions.reads import SubscriptionReads
from headwater.gateway.subscriptions.subscription_api import SubscriptionApi

PATH = "/v1/subscriptions"
ONE = PATH + "/{name}"
NAMES = {"name": {"type": "string", "pattern": NAME_PATTERN}}
MAX_ACK_BODY_BYTES = 4 * 1024 * 1024


class SubscriptionRoutes:
    def __init__(self, api: SubscriptionApi) -> None:
        self._api = api

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", PATH, self.list_subscriptions, "List subscriptions", answers={200: Subscriptions}),
            Operation(
                "POST", PATH, self.create_subscription, "Subscribe to a topic",
                body=SubscriptionIn, answers={201: Subscription}, problems=(404, 409, 415, 502),
            ),
            Operation(
                "GET", ONE, self.get_subscription, "Describe a subscription",
                path_schemas=NAMES, answers={200: Subscription}, problems=(404, 502),
            ),
            Operation(
                "PATCH", ONE, self.change_subscription, "Change a subscription",
                path_schemas=NAMES, body=SubscriptionChange, answers={200: Subscription}, problems=(404, 502, 415),
            ),
            Operation(
                "DELETE", ONE, self.delete_subscription, "Unsubscribe",
                path_schemas=NAMES, answers={204: None}, problems=(404, 502, 409),
            ),
        ]  # fmt: skip

    async def list_subscriptions(self, request: Request) -> Response:
        return answer(Subscriptions(await self._api.all()))

    async def create_subscription(self, request: Request, body: SubscriptionIn) -> Response:
        return answer(await self._api.create(body), 201)

    async def get_subscription(self, request: Request) -> Response:
        return answer(await self._api.describe(request.path_params["name"]))

    async def change_subscription(self, request: Request, body: SubscriptionChange) -> Response:
        return answer(await self._api.change(request.path_params["name"], body))

    async def delete_subscription(self, request: Request) -> Response:
        await self._api.delete(request.path_params["name"])
        return Response(status_code=204)


class ReadRoutes:
    """Records of one subscription."""

    def __init__(self, reads: SubscriptionReads, dead_letters: DeadLetterApi, budget: Budget) -> None:
        self._reads = reads
        self._dead_letters = dead_letters
        self._budget = budget

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "POST", f"{ONE}/pull", self.pull, "Take records, waiting for them if asked to",
                path_schemas=NAMES, body=PullIn, is_body_required=False,
                answers={200: Pulled}, problems=(404, 502, 409, 415),
            ),
            Operation(
                "POST", f"{ONE}/ack", self.acknowledge,
                "Accept, release, reject records of a queue, or keep them longer",
                path_schemas=NAMES, body=AckIn, max_body_bytes=MAX_ACK_BODY_BYTES,
                answers={200: AckResults}, problems=(404, 502, 409, 413, 415),
            ),
            Operation(
                "POST", f"{ONE}/commit", self.commit, "Say how far a stream is read",
                path_schemas=NAMES, body=CommitIn, answers={204: None}, problems=(404, 502, 409, 413, 415),
            ),
            Operation(
                "GET", f"{ONE}/dead-letters", self.dead_letters, "The newest records that a queue gave up on",
                path_schemas=NAMES, query=LettersQuery, answers={200: Letters}, problems=(404, 502, 409, 414),
            ),
            Operation(
                "POST", f"{ONE}/redrive", self.redrive, "Send dead letters back, each once",
                path_schemas=NAMES, body=RedriveIn, is_body_required=False,
                answers={200: Redriven}, problems=(404, 502, 409, 415),
            ),
        ]  # fmt: skip

    async def pull(self, request: Request, body: PullIn) -> Response:
        with self._budget.hold(body.max_bytes):
            return answer(Pulled(await self._reads.pull(request.path_params["name"], body, request)))

    async def acknowledge(self, request: Request, body: AckIn) -> Response:
        return answer(AckResults(await self._reads.acknowledge(request.path_params["name"], body)))

    async def commit(self, request: Request, body: CommitIn) -> Response:
        await self._reads.commit(request.path_params["name"], body)
        return Response(status_code=204)

    async def dead_letters(self, request: Request, query: LettersQuery) -> Response:
        return answer(await self._dead_letters.newest(request.path_params["name"], query.limit))

    async def redrive(self, request: Request, body: RedriveIn) -> Response:
        return answer(await self._dead_letters.redrive(request.path_params["name"], body))
