"""/v1/session: a browser shows the token once and gets a cookie that no script can read and no other site can use."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.http.problems import Problem
from headwater.gateway.http.security import COOKIE, Guard

PUBLIC = ("/v1/session",)
PATH = "/v1/session"
MAX_AGE_S = 30 * 86_400
MAX_BODY_BYTES = 16 * 1024


class Login(Struct, forbid_unknown_fields=True):
    token: str


class Session(Struct):
    asks_for_token: bool
    """Whether this gateway wants one at all."""


class SessionRoutes:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", PATH, self.session, "Whether a token is asked for", answers={200: Session}),
            Operation(
                "POST", PATH, self.log_in, "Log in with the token; sets a cookie",
                body=Login, answers={204: None}, max_body_bytes=MAX_BODY_BYTES,
            ),
            Operation("DELETE", PATH, self.log_out, "Log out", answers={204: None}),
        ]  # fmt: skip

    async def session(self, request: Request) -> Response:
        return answer(Session(self._guard.asks_for_token))

    async def log_in(self, request: Request, body: Login) -> Response:
        cookie = self._guard.session(body.token)
        if self._guard.asks_for_token and cookie is None:
            raise Problem(401, "Unauthorized", "That is not the gateway's token.")
        response = Response(status_code=204)
        if cookie is not None:
            response.set_cookie(COOKIE, cookie, max_age=MAX_AGE_S, path="/", httponly=True, samesite="strict")
        return response

    async def log_out(self, request: Request) -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response
