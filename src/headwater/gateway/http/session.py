"""/v1/session: a browser shows the token once and gets a cookie that no script can read and no other site can use."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.context import Context
from headwater.gateway.http.problems import Problem
from headwater.gateway.http.security import COOKIE
from headwater.gateway.openapi import answer, operation

PUBLIC = ("/v1/session",)
PATH = "/v1/session"
MAX_AGE_S = 30 * 86_400
MAX_BODY_BYTES = 16 * 1024


class Login(Struct, forbid_unknown_fields=True):
    token: str


class Session(Struct):
    asks_for_token: bool
    """Whether this gateway wants one at all."""


def routes(context: Context) -> list[BaseRoute]:
    async def log_in(request: Request, body: Login) -> Response:
        value = context.guard.session(body.token)
        if context.guard.asks_for_token and value is None:
            raise Problem(401, "Unauthorized", "That is not the gateway's token.")
        response = Response(status_code=204)
        if value is not None:
            response.set_cookie(COOKIE, value, max_age=MAX_AGE_S, path="/", httponly=True, samesite="strict")
        return response

    async def log_out(request: Request) -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def session(request: Request) -> Response:
        return answer(Session(context.guard.asks_for_token))

    return [
        operation("GET", PATH, session, "Whether a token is asked for", context, answers={200: Session}),
        operation(
            "POST", PATH, log_in, "Log in with the token; sets a cookie", context,
            body=Login, answers={204: None}, max_body_bytes=MAX_BODY_BYTES,
        ),
        operation("DELETE", PATH, log_out, "Log out", context, answers={204: None}),
    ]  # fmt: skip
