"""The team service of the server process: open, write, say, abort, watch and close.

It knows the teams through ``team_state.py``, sends commands to the scheduler that holds
them, and hears from it what happened. The HTTP routes and programs that run an Engine
in process both use it. All methods run on the tokenizer manager's event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from runtime_patch.attention.layouts import LAYOUTS, UnknownLayout, find_layout
from runtime_patch.errors import TeamError
from runtime_patch.messages import TeamCommand, TeamEvent, TeamReply
from runtime_patch.server.generation import prefill
from runtime_patch.server.schemas import OpenTeam
from runtime_patch.server.team_state import LiveStep, TeamState, WorkerState
from runtime_patch.server.tokenization import Tokenization
from runtime_patch.team_request import Kind
from runtime_patch.versions import package_version, sglang_version

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Names of closed teams are remembered, so that using one says 410 and not 404.
REMEMBERED = 4096
COMMAND_TIMEOUT = 60.0


class TeamService:
    """Teams of one server. manager: SGLang's TokenizerManager."""

    def __init__(self, manager: Any):
        self.manager = manager
        self.teams: dict[str, TeamState] = {}
        self._closed: dict[str, str] = {}
        self._calls: dict[int, asyncio.Future] = {}
        self._call_numbers = itertools.count(1)
        self._ranks = itertools.count()
        self._sweeper: asyncio.Task | None = None
        self._kernel: str | None = None
        self._tasks: set[asyncio.Task] = set()

    @property
    def texts(self) -> Tokenization:
        return Tokenization(self.manager.tokenizer, self.manager.model_config.vocab_size)

    # What callers use.

    async def about(self) -> dict:
        """Says that the patch is active, and with what."""
        from sglang.srt.runtime_context import get_model

        if self._kernel is None:
            self._kernel = (await self._command("about", ""))["kernel"]
        return {
            "active": True,
            "kernel": self._kernel,
            "hogwild_sgl": package_version(),
            "sglang": sglang_version(),
            "model": get_model().model_path,
            "served_model_name": self.manager.served_model_name,
            "layouts": list(LAYOUTS),
            "context_length": self.manager.context_len,
            "teams": len(self.teams),
        }

    def find(self, name: str) -> TeamState:
        if name in self.teams:
            self.teams[name].last_used = time.monotonic()
            return self.teams[name]
        self._refuse_closed(name)
        raise TeamError(f"unknown team {name!r}", HTTPStatus.NOT_FOUND, "unknown_team")

    def _refuse_closed(self, name: str) -> None:
        if name in self._closed:
            raise TeamError(
                f"team {name} is closed ({self._closed[name]})", HTTPStatus.GONE, "team_closed"
            )

    async def open(self, body: OpenTeam) -> TeamState:
        """Open a team: tell the scheduler, prefill the prompt and headers, keep them."""
        from sglang.srt.runtime_context import get_parallel

        self._start()
        try:
            find_layout(body.layout)
        except UnknownLayout as error:
            raise TeamError(str(error), type="unknown_layout") from error
        prompt = self.texts.prompt(body)
        headers = self.texts.headers(body.formatting)
        after_prompt = body.formatting.headers == "prompt"
        name = f"hw-{secrets.token_hex(6)}"
        rank = next(self._ranks) % get_parallel().num_dp_ranks
        team = TeamState(
            name=name,
            layout=body.layout,
            seed=body.seed,
            workers=[WorkerState(worker) for worker in body.workers],
            dp_rank=rank,
            prompt_tokens=len(prompt),
            header_tokens={
                "others": len(headers[Kind.HEADER_OTHERS]),
                "own": len(headers[Kind.HEADER_OWN]),
            },
            context_length=self.manager.context_len,
            idle_timeout=body.idle_timeout,
        )
        self.teams[name] = team
        try:
            await self._command(
                "open",
                team.name,
                team.dp_rank,
                workers=len(body.workers),
                layout=body.layout,
                headers_after_prompt=after_prompt,
                key=team.key,
            )
            await prefill(self.manager, team, Kind.PROMPT, prompt)
            for kind, tokens in headers.items():
                if tokens:
                    whole = prompt + tokens if after_prompt else tokens
                    await prefill(self.manager, team, kind, whole)
        except BaseException:
            self.spawn(self.close(team, "error"))
            raise
        team.last_used = time.monotonic()
        team.opened = True
        return team

    async def close(self, team: TeamState, reason: str = "request") -> None:
        """Close and wait until the scheduler has given everything back."""
        team.require_open()
        try:
            await self._command("close", team.name, team.dp_rank, reason=reason)
        except TeamError as error:
            if team.closed:
                return  # somebody else closed it at the same time
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._close(team, reason)  # the scheduler has never had it
        await self._in_time(team.closed_event.wait())

    async def abort(self, team: TeamState, worker: int | str, number: int | None = None) -> bool:
        """Drop a worker's live step; wait until the worker is free. number: only that one."""
        team.require_open()
        live = team.workers[team.number_of(worker)].live
        if live is None or number not in (None, live.number):
            return False
        self.manager.abort_request(live.rid)
        await self._in_time(asyncio.shield(live.ended))
        return True

    async def lockstep(self, team: TeamState, workers: list[int | str]) -> list[str]:
        """The workers whose next steps the team's forwards wait for from now on."""
        team.require_open()
        numbers = sorted({team.number_of(worker) for worker in workers})
        await self._command("lockstep", team.name, team.dp_rank, workers=numbers)
        return [team.workers[number].name for number in numbers]

    async def snapshot(self, team: TeamState) -> dict:
        team.require_open()
        counts = await self._command("inspect", team.name, team.dp_rank)
        return {
            "team": team.name,
            "state": "open",
            "layout": team.layout,
            "seed": team.seed,
            "workers": [_worker(i, worker) for i, worker in enumerate(team.workers)],
            "prompt_tokens": team.prompt_tokens,
            "steps": team.steps,
            **counts,
        }

    async def events(self, team: TeamState, hold: bool) -> AsyncIterator[dict]:
        """Everything that happens to a team, from now until it is closed.

        hold: the team is closed when the caller goes away."""
        snapshot = await self.snapshot(team)
        team.require_open()
        # From here on nothing happens unheard, and nothing heard is in the snapshot.
        queue: asyncio.Queue = asyncio.Queue()
        team.listeners.append(queue)
        try:
            yield {"type": "snapshot", **snapshot}
            while True:
                event = await queue.get()
                yield event
                if event["type"] == "closed":
                    return
        finally:
            team.listeners.remove(queue)
            if hold and not team.closed:
                self.spawn(self.close(team, "owner_gone"))

    # What the scheduler says.

    def on_reply(self, reply: TeamReply) -> None:
        future = self._calls.pop(reply.call, None)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.result)
        else:
            future.set_exception(TeamError(reply.error, reply.result["status"]))

    def on_event(self, event: TeamEvent) -> None:
        team = self.teams.get(event.team)
        if team is None:
            return
        if event.kind == "closed":
            self._close(team, event.data["reason"])
            return
        live = team.live_by_rid(event.data["rid"])
        if live is None:
            return
        if event.kind == "start":
            live.fed_tokens = event.data["fed_tokens"]
            if not live.begun.done():
                live.begun.set_result(event.data)
            if not live.reader and not live.said:
                team.emit({"type": "start", **team.who(live)})
            return
        if event.kind == "published":
            team.publish(live, event.data, self.texts.decode(event.data["tokens"]))
        self._end(team, live, event.kind, event.data)

    async def sync_with_scheduler(self, team: TeamState, live: LiveStep) -> None:
        """A request has failed: wait for what the scheduler says about it, which is nothing
        if it has never got there. The worker is free afterwards."""
        try:
            # Its answer comes behind all that it has said before.
            await self._command("inspect", team.name, team.dp_rank)
        except TeamError as error:
            logger.debug("hogwild: %s", error)
        if not live.ended.done():
            self._end(team, live, "dropped", {"reason": "refused"})

    # Inside.

    def _end(self, team: TeamState, live: LiveStep, kind: str, data: dict) -> None:
        team.last_used = time.monotonic()
        team.end(live)
        if not live.ended.done():
            live.ended.set_result((kind, data))
        if kind == "dropped" and not live.reader:
            dropped = {"type": "dropped", "reason": data["reason"], **team.who(live)}
            team.emit(dropped, after=live)

    def _close(self, team: TeamState, reason: str) -> None:
        team.closed = reason
        for live in team.all_live():
            self._end(team, live, "dropped", {"reason": "closed"})
        del self.teams[team.name]
        self._closed[team.name] = reason
        while len(self._closed) > REMEMBERED:
            del self._closed[next(iter(self._closed))]
        team.emit({"type": "closed", "reason": reason})
        team.flush(everything=True)
        team.closed_event.set()

    async def _command(self, command: str, team: str, dp_rank: int = 0, **arguments: Any) -> dict:
        self._start()
        call, future = next(self._call_numbers), asyncio.get_running_loop().create_future()
        self._calls[call] = future
        self.manager._dispatch_to_scheduler(
            TeamCommand(
                call=call,
                command=command,
                team=team,
                dp_rank=dp_rank,
                arguments=arguments,
            )
        )
        try:
            return await self._in_time(future)
        except TeamError:
            self._refuse_closed(team)  # closed meanwhile: say so
            raise
        finally:
            self._calls.pop(call, None)

    async def _in_time(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                return await answer
        except TimeoutError as error:
            raise TeamError(
                f"the scheduler did not answer within {COMMAND_TIMEOUT:.0f} s",
                HTTPStatus.SERVICE_UNAVAILABLE,
            ) from error

    def _start(self) -> None:
        self.manager.auto_create_handle_loop()
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def _sweep(self) -> None:
        """Close teams nobody has used for their idle time."""
        while True:
            await asyncio.sleep(0.25)
            now = time.monotonic()
            for team in list(self.teams.values()):
                if team.idle_since(now):
                    team.closing = True
                    self.spawn(self.close(team, "idle"))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run on without the caller, keeping a reference and saying what went wrong."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("hogwild: %s", task.exception())


def _worker(number: int, worker: WorkerState) -> dict:
    live = worker.live
    return {
        "worker": number,
        "name": worker.name,
        "steps": worker.steps,
        "tokens": worker.tokens,
        "live": live
        and {
            "rid": live.rid,
            "number": live.number,
            "fed_tokens": live.fed_tokens,
            "text": live.text,
        },
        "queued": worker.ahead and worker.ahead.rid,
    }
