"""A receiver of webhooks as a process of its own: it can be killed, be slow, and answer as a test wants.

    python -m tests.gateway.push.receiver <log file> <port>

It answers by the path: /ok (204), /slow (after a second), /hang (never), /status/<code>, /flaky (500 to the first
request of a record), /poison (500 for that body), /busy (503 with Retry-After: 1 the first time), /redirect (302).
Each request is a line of JSON in the log, written before it is answered: what was acknowledged is there.
"""

import asyncio
import json
import sys
import time

from aiohttp import web


def main(log_path: str, port: int) -> None:
    log = open(log_path, "a", buffering=1)  # noqa: SIM115  until the process ends
    seen: dict[str, int] = {}
    busy: set[str] = set()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        began_s = time.time()
        action = request.path
        record_id = request.headers.get("Headwater-Id", "")
        seen[record_id] = seen.get(record_id, 0) + 1
        status = 204
        headers = {}
        if action == "/hang":
            await asyncio.sleep(60)
        elif action == "/slow":
            await asyncio.sleep(float(request.query.get("s", "1")))
        elif action.startswith("/status/"):
            status = int(action.rpartition("/")[2])
        elif action == "/flaky":
            status = 500 if seen[record_id] % 2 else 204
        elif action == "/poison":
            status = 500 if body == b"poison" else 204
        elif action == "/busy":
            status = 204 if record_id in busy else 503
            headers = {} if status == 204 else {"Retry-After": "1"}
            busy.add(record_id)
        elif action == "/redirect":
            status, headers = 302, {"Location": "/ok"}
        line = {
            "path": action,
            "at": began_s,
            "ended": time.time(),
            "status": status,
            "body": body.decode(errors="replace"),
            "headers": dict(request.headers),
        }
        log.write(json.dumps(line) + "\n")
        return web.Response(status=status, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receive)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, handle_signals=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
