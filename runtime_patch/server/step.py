"""One step, reader or say: from a request body to SGLang's request and back to a record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import TeamError
from runtime_patch.server.generation import make_request, outputs
from runtime_patch.server.sampling_params import check_sampling_params
from runtime_patch.server.schemas import Say, WriteStep
from runtime_patch.server.service import TeamService
from runtime_patch.server.team_state import LiveStep, TeamState
from runtime_patch.team_request import Kind, Purpose

END_TIMEOUT = 60.0
NEW_TOKENS = 128


class StepHandler:
    """A request that has taken its place in a team; made by ``begin``."""

    def __init__(self, service: TeamService, team: TeamState, live: LiveStep, request: Any):
        self._service = service
        self._team = team
        self._live = live
        self._request = request

    @classmethod
    def begin(cls, service: TeamService, team: TeamState, body: WriteStep | Say) -> StepHandler:
        """Check the body and take the worker for it. Raises TeamError; nothing is taken then."""
        team.require_open()
        if isinstance(body, WriteStep):
            _check(service, body)
        tokens = service.texts.inner(body.text, body.input_ids)
        ahead = isinstance(body, WriteStep) and body.after_live
        live = _live_step(team, body, len(tokens))
        before = team.workers[live.worker].live if ahead and live.worker is not None else None
        purpose = _purpose(service, team, body, live, before, empty=not tokens)
        request = _sglang_request(team, body, live, tokens, purpose)
        team.begin(live, ahead, body.number if isinstance(body, WriteStep) else None)
        return cls(service, team, live, request)

    @property
    def is_ahead(self) -> bool:
        """Does it wait behind its worker's live step?"""
        worker = self._live.worker
        return worker is not None and self._team.workers[worker].ahead is self._live

    async def run(self) -> AsyncIterator[dict]:
        """Yields start, text..., end. However it is left, the worker is free afterwards."""
        manager, team, live, done = self._service.manager, self._team, self._live, False
        try:
            out: dict = {"meta_info": {}}
            started = False
            async with aclosing(outputs(manager, self._request)) as replies:
                async for out in replies:
                    if not started:
                        started = True
                        begun = await _from_scheduler(live.begun)
                        yield {"type": "start", "step": {**self._who(), **begun}}
                    delta = self._delta(out)
                    if delta["text"] or delta["output_ids"]:
                        if not live.reader:
                            team.emit_text(live, delta["text"])
                        yield {"type": "text", **delta}
            self._all_delivered()
            kind, data = await _from_scheduler(live.ended)
            if kind == "dropped":
                raise TeamError("the step was aborted", HTTPStatus.CONFLICT, "aborted")
            done = True
            yield {"type": "end", **self._record(data, out["meta_info"])}
        except TeamError as error:
            if live.rid not in manager.rid_to_state:
                await self._service.sync_with_scheduler(team, live)
            if error.status == HTTPStatus.NOT_FOUND:
                team.require_open()  # the team was closed while the request was on its way
            raise
        finally:
            self._all_delivered()
            if not done:
                self._abandon()

    async def result(self) -> dict:
        """The end event, without its type."""
        *_, end = [event async for event in self.run()]
        return {key: value for key, value in end.items() if key != "type"}

    def _delta(self, out: dict) -> dict:
        """What an output of SGLang's adds to the text and the tokens so far."""
        live = self._live
        ids, text = list(out.get("output_ids") or []), out.get("text") or ""
        if self._service.manager.incremental_streaming_output:
            ids, text = live.output + ids, live.text + text
        delta = {"text": text[len(live.text) :], "output_ids": ids[len(live.output) :]}
        live.output, live.text = ids, text
        return delta

    def _abandon(self) -> None:
        """The request failed or its reader went away: nothing of it may stay."""
        live, service = self._live, self._service
        if live.ended.done():
            return
        if live.rid in service.manager.rid_to_state:
            service.manager.abort_request(live.rid)
        else:
            # It was on its way to the scheduler, or has already ended there.
            service.spawn(service.sync_with_scheduler(self._team, live))

    def _all_delivered(self) -> None:
        self._live.delivered = True
        self._team.flush()

    def _who(self) -> dict:
        who = self._team.who(self._live)
        return {"team": self._team.name, **who, "reader": self._live.reader}

    def _record(self, data: dict, meta_info: dict) -> dict:
        """The reply of docs/http.md from what the scheduler said at the end."""
        live = self._live
        step = {
            **self._who(),
            "index": data.get("index"),
            "fed_tokens": data["fed_tokens"],
            "output_tokens": data["output_tokens"],
            "published_tokens": len(data.get("tokens", [])),
            "forwards": data["forwards"],
            "team_forwards": data["team_forwards"],
            "history_start": data["history_start"],
            "history_published": data.get("history_published"),
            "finish": {"type": "said"} if live.said else _finish(data["finish"]),
        }
        meta = {k: v for k, v in meta_info.items() if k != "finish_reason"}
        return {"text": live.text, "output_ids": live.output, "step": step, "meta_info": meta}


def _check(service: TeamService, body: WriteStep) -> None:
    """Raise TeamError for a step that this server and model cannot write."""
    if body.end == "sentence" and not service.texts.has_tokenizer:
        raise TeamError('this server has no tokenizer: use "end": "none"')
    manager = service.manager
    check_sampling_params(manager, body.sampling_params)
    new = body.sampling_params.get("max_new_tokens", NEW_TOKENS)
    if new is None or new < (0 if body.reader else 1):
        raise TeamError(f"max_new_tokens must be a positive whole number, got {new}")
    if body.top_logprobs_num > manager.model_config.vocab_size:
        raise TeamError(
            f"top_logprobs_num is {body.top_logprobs_num}, but the vocabulary has "
            f"{manager.model_config.vocab_size} tokens"
        )


def _live_step(team: TeamState, body: WriteStep | Say, fed_tokens: int) -> LiveStep:
    loop = asyncio.get_running_loop()
    worker = None if body.worker is None else team.number_of(body.worker)
    reader = isinstance(body, WriteStep) and body.reader
    return LiveStep(
        rid=f"{team.name}-{secrets.token_hex(6)}",
        worker=worker,
        reader=reader,
        said=isinstance(body, Say),
        number=None if worker is None or reader else team.workers[worker].steps + 1,
        fed_tokens=fed_tokens,
        begun=loop.create_future(),
        ended=loop.create_future(),
    )


def _purpose(
    service: TeamService,
    team: TeamState,
    body: WriteStep | Say,
    live: LiveStep,
    before: LiveStep | None,
    *,
    empty: bool,
) -> Purpose:
    if isinstance(body, Say):
        kind = Kind.SAY if live.worker is None else Kind.STEP
        return Purpose(kind, team.name, team.key, worker=live.worker, empty=empty)
    separated = None
    if body.separator is not None:
        separated = service.texts.inner(body.separator + body.text, None)
    return Purpose(
        kind=Kind.READER if body.reader else Kind.STEP,
        team=team.name,
        key=team.key,
        worker=live.worker,
        ends_by_rule=body.end == "sentence",
        ahead=body.after_live,
        predecessor=before.rid if before else None,
        forwards_limit=body.until_forwards,
        empty=empty,
        separated=separated,
    )


def _sglang_request(
    team: TeamState, body: WriteStep | Say, live: LiveStep, tokens: list[int], purpose: Purpose
) -> Any:
    if isinstance(body, Say):
        return make_request(team, live.rid, tokens, {"max_new_tokens": 0}, purpose)
    return make_request(
        team,
        live.rid,
        tokens,
        {"max_new_tokens": NEW_TOKENS, **body.sampling_params},
        purpose,
        stream=True,
        return_logprob=body.return_logprob,
        logprob_start_len=body.logprob_start_len,
        top_logprobs_num=body.top_logprobs_num,
        token_ids_logprob=body.token_ids_logprob,
    )


async def _from_scheduler(future: asyncio.Future) -> Any:
    """What the scheduler says about a request, on its way beside SGLang's output."""
    try:
        # wait_for can swallow a cancellation (Python < 3.12), and the step would go on
        # without its client.
        async with asyncio.timeout(END_TIMEOUT):
            return await asyncio.shield(future)
    except TimeoutError as error:
        raise TeamError(
            f"the scheduler has been silent for {END_TIMEOUT:.0f} s",
            HTTPStatus.SERVICE_UNAVAILABLE,
        ) from error


def _finish(reason: dict) -> dict:
    """SGLang's finish reason in the words of docs/http.md."""
    kind = reason["type"]
    if kind == "stop" and isinstance(reason.get("matched"), int):
        return {"type": "eos", "matched": reason["matched"]}
    if kind == "stop":
        return {"type": "stop", "matched": reason.get("matched")}
    return {"type": kind}
