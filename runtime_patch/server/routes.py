"""The /hogwild routes on SGLang's HTTP app. See docs/http.md."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from runtime_patch.errors import TeamError
from runtime_patch.server.schemas import AbortStep, Lockstep, OpenTeam, Say, WriteStep
from runtime_patch.server.service import TeamService
from runtime_patch.server.step import StepHandler

T = TypeVar("T")

DISCONNECT_POLL = 0.2
# Seconds between the comments on a stream whose step has not begun.
SIGN_OF_LIFE = 1.0


class _ErrorRoute(APIRoute):
    """Turns TeamErrors and bodies that do not fit their schema into error replies,
    without touching SGLang's own handlers."""

    def get_route_handler(self) -> Callable:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Any:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return _reply(_complaint(error))
            except TeamError as error:
                return _reply(error)
            except HTTPException as error:  # a body that Python's JSON parser gives up on
                return _reply(TeamError(str(error.detail), error.status_code))

        return handle


def _reply(error: TeamError) -> JSONResponse:
    return JSONResponse(error.body(), status_code=error.status)


def _complaint(error: RequestValidationError) -> TeamError:
    """What is wrong with a body, in words. 422 if it is malformed, 400 if it makes no sense."""
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"][1:]) or "body"
        what = problem.get("ctx", {}).get("error") or problem["msg"]
        if problem["type"] == "json_invalid":
            what, where = f"{what}, at character {where}", "the body is not JSON"
        lines.append(f"{where}: {what}")
    senseless = all(problem["type"] == "value_error" for problem in error.errors())
    status = HTTPStatus.BAD_REQUEST if senseless else HTTPStatus.UNPROCESSABLE_ENTITY
    return TeamError("; ".join(lines), status)


def make_router(service: TeamService) -> APIRouter:
    router = APIRouter(prefix="/hogwild", route_class=_ErrorRoute, tags=["hogwild"])

    @router.get("")
    async def about() -> dict:
        return await service.about()

    @router.post("/teams")
    async def open_team(body: OpenTeam, request: Request) -> dict:
        team_state = await _unless_gone(request, service.open(body))
        if await request.is_disconnected():
            # Nobody would ever learn the team's name.
            service.spawn(service.close(team_state, "owner_gone"))
        return {
            "team": team_state.name,
            "workers": [worker.name for worker in team_state.workers],
            "layout": team_state.layout,
            "seed": team_state.seed,
            "prompt_tokens": team_state.prompt_tokens,
            "header_tokens": team_state.header_tokens,
            "context_length": team_state.context_length,
            "idle_timeout": team_state.idle_timeout,
        }

    @router.get("/teams/{team}")
    async def snapshot(team: str) -> dict:
        return await service.snapshot(service.find(team))

    @router.delete("/teams/{team}")
    async def close(team: str) -> dict:
        await service.close(service.find(team))
        return {"closed": True}

    @router.post("/teams/{team}/steps")
    async def write(team: str, body: WriteStep, request: Request) -> Any:
        step = StepHandler.begin(service, service.find(team), body)
        if not body.stream:
            return await _unless_gone(request, step.result())
        events = step.run()
        if step.is_ahead:
            # It may wait long. With its headers sent and a comment now and then the client
            # knows that it is not forgotten; a refusal comes as an event.
            stream = _sse(anext(events), events)
            return StreamingResponse(stream, media_type="text/event-stream")
        # The first event is awaited here, so that a refusal has its own status.
        first = await _unless_gone(request, anext(events))
        return StreamingResponse(_sse(first, events), media_type="text/event-stream")

    @router.post("/teams/{team}/say")
    async def say(team: str, body: Say, request: Request) -> dict:
        step = StepHandler.begin(service, service.find(team), body)
        end = await _unless_gone(request, step.result())
        return {"step": end["step"]}

    @router.post("/teams/{team}/abort")
    async def abort(team: str, body: AbortStep) -> dict:
        return {"aborted": await service.abort(service.find(team), body.worker, body.number)}

    @router.post("/teams/{team}/lockstep")
    async def lockstep(team: str, body: Lockstep) -> dict:
        return {"lockstep": await service.lockstep(service.find(team), body.workers)}

    @router.get("/teams/{team}/events")
    async def events(team: str, hold: bool = False) -> StreamingResponse:
        stream = service.events(service.find(team), hold)
        first = await anext(stream)
        return StreamingResponse(_sse(first, stream, done=None), media_type="text/event-stream")

    return router


async def _sse(
    first: dict | Awaitable[dict], events: AsyncIterator[dict], done: str | None = "[DONE]"
) -> AsyncIterator[str]:
    """first: the first event, or what it will be."""
    waiting = None if isinstance(first, dict) else asyncio.ensure_future(first)
    try:
        while waiting is not None and not waiting.done():
            await asyncio.wait([waiting], timeout=SIGN_OF_LIFE)
            if not waiting.done():
                yield ": waiting\n\n"
        yield _line(first if waiting is None else waiting.result())
        async for event in events:
            yield _line(event)
    except TeamError as error:
        yield _line({"type": "error", **error.body()})
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
        await events.aclose()
    if done:
        yield f"data: {done}\n\n"


def _line(event: dict) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Await the work, but cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait([task], timeout=DISCONNECT_POLL)
            if done:
                return task.result()
            if await request.is_disconnected():
                raise TeamError("the client disconnected", 499, "client_closed_request")
    finally:
        if not task.done():
            task.cancel()
