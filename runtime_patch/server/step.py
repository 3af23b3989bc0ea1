"""Writing for a team: from a request body to SGLang's request and back to a record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec

from runtime_patch.errors import ServiceError
from runtime_patch.messages import Purpose
from runtime_patch.scheduler.admission import NOT_BEGUN, OUT_OF_FORWARDS
from runtime_patch.scheduler.team import Kind
from runtime_patch.server.sampling_params import check_sampling_params
from runtime_patch.server.schemas import Say, WriteStep
from runtime_patch.server.service import TeamService
from runtime_patch.server.team_state import LiveStep, TeamMirror

END_TIMEOUT = 60.0


def part_request(mirror: TeamMirror, kind: Kind, tokens: list[int]) -> Any:
    """An ordinary request that prefills the prompt or a header; it samples nothing."""
    return _request(
        mirror,
        rid=f"{mirror.name}-{kind}",
        tokens=tokens,
        sampling_params={"max_new_tokens": 0},
        purpose=Purpose(kind, mirror.name, mirror.key),
    )


def _request(
    mirror: TeamMirror,
    rid: str,
    tokens: list[int],
    sampling_params: dict,
    purpose: Purpose,
    **more: Any,
) -> Any:
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.runtime_context import get_parallel

    custom = {
        **(sampling_params.get("custom_params") or {}),
        "hogwild": msgspec.to_builtins(purpose),
    }
    return GenerateReqInput(
        rid=rid,
        input_ids=tokens,
        sampling_params={**sampling_params, "custom_params": custom},
        routed_dp_rank=mirror.dp_rank if get_parallel().num_dp_ranks > 1 else None,
        **more,
    )


async def outputs(manager: Any, request: Any) -> AsyncIterator[dict]:
    """SGLang's outputs of a request; its failures as ServiceErrors with a status."""
    try:
        async with aclosing(manager.generate_request(request)) as replies:
            async for out in replies:
                reason = out["meta_info"].get("finish_reason") or {}
                if reason.get("type") == "abort":
                    raise _aborted(reason)
                yield out
    except ValueError as error:
        raise ServiceError(str(error)) from error
    except ServiceError:
        raise
    except Exception as error:
        # SGLang raises an HTTPException for aborts that carry a server error.
        status = getattr(error, "status_code", None)
        if status is None:
            raise
        raise ServiceError(str(getattr(error, "detail", error)), status) from error


def _aborted(reason: dict) -> ServiceError:
    """SGLang's abort as an error: with the status it gives, else as somebody's abort."""
    status, message = reason.get("status_code"), reason.get("message") or "aborted"
    if status is None:
        return ServiceError(message, HTTPStatus.CONFLICT, "aborted")
    kind = reason.get("err_type")
    ours = kind in (NOT_BEGUN, OUT_OF_FORWARDS)
    return ServiceError(message, int(status), kind if ours else None)


async def run_to_end(manager: Any, request: Any) -> dict:
    """The last output of a request."""
    return [out async for out in outputs(manager, request)][-1]


async def _told(future: asyncio.Future) -> Any:
    """What the scheduler says about a request, on its way beside SGLang's output."""
    try:
        # wait_for can swallow a cancellation (Python < 3.12), and the step would go on
        # without its client.
        async with asyncio.timeout(END_TIMEOUT):
            return await asyncio.shield(future)
    except TimeoutError as error:
        raise ServiceError(
            f"the scheduler has been silent for {END_TIMEOUT:.0f} s",
            HTTPStatus.SERVICE_UNAVAILABLE,
        ) from error


class Writing:
    """One step, reader or say, from its body to its record."""

    def __init__(self, service: TeamService, mirror: TeamMirror, body: WriteStep | Say):
        self.service = service
        self.mirror = mirror
        self.body = body
        self.said = isinstance(body, Say)
        self.reader = not self.said and body.reader
        mirror.require_open()
        self.worker = None if body.worker is None else mirror.number_of(body.worker)
        self._check()
        self.separated = self._separated()
        self.live = self._begin()

    # Before.

    def _check(self) -> None:
        if self.said:
            return
        if self.body.end == "sentence" and not self.service.texts.has_tokenizer:
            raise ServiceError('this server has no tokenizer: use "end": "none"')
        params, manager = self.body.sampling_params, self.service.manager
        check_sampling_params(manager, params)
        new = params.get("max_new_tokens", 128)
        if new is None or new < (0 if self.reader else 1):
            raise ServiceError(f"max_new_tokens must be a positive whole number, got {new}")
        if self.body.top_logprobs_num > manager.model_config.vocab_size:
            raise ServiceError(
                f"top_logprobs_num is {self.body.top_logprobs_num}, but the vocabulary has "
                f"{manager.model_config.vocab_size} tokens"
            )

    def _separated(self) -> list[int] | None:
        """The tokens of the text with its separator, for a step that has one."""
        if self.said or self.body.separator is None:
            return None
        return self.service.texts.inner(self.body.separator + self.body.text, None)

    def _begin(self) -> LiveStep:
        mirror, loop = self.mirror, asyncio.get_running_loop()
        state = None if self.worker is None else mirror.workers[self.worker]
        self.after_live = not self.said and self.body.after_live
        # A step behind a live one is given its carried token by the scheduler.
        carries = state is not None and state.carried is not None and not self.after_live
        carried = [state.carried] if carries else []
        fed = carried + self.service.texts.inner(self.body.text, self.body.input_ids)
        if not fed:
            raise ServiceError("nothing to feed: give a text (the worker carries no token)")
        live = LiveStep(
            rid=f"{mirror.name}-{secrets.token_hex(6)}",
            worker=self.worker,
            reader=self.reader,
            said=self.said,
            number=None if state is None or self.reader else state.steps + 1,
            fed=fed,
            ended=loop.create_future(),
            begun=loop.create_future(),
        )
        before = state.live if state is not None and self.after_live else None
        self.behind = before.rid if before else None
        mirror.begin(live, self.after_live, None if self.said else self.body.number)
        return live

    @property
    def waits(self) -> bool:
        """Does it wait behind its worker's live step?"""
        return self.worker is not None and self.mirror.workers[self.worker].queued is self.live

    def _sglang_request(self) -> Any:
        body, live = self.body, self.live
        if self.said:
            kind = Kind.SAY if self.worker is None else Kind.STEP
            sampling, more = {"max_new_tokens": 0}, {}
        else:
            kind = Kind.READER if self.reader else Kind.STEP
            sampling = {"max_new_tokens": 128, **body.sampling_params}
            more = {
                "stream": True,
                "return_logprob": body.return_logprob,
                "logprob_start_len": body.logprob_start_len,
                "top_logprobs_num": body.top_logprobs_num,
                "token_ids_logprob": body.token_ids_logprob,
            }
        purpose = Purpose(
            kind,
            self.mirror.name,
            self.mirror.key,
            worker=self.worker,
            ends_by_rule=not self.said and body.end == "sentence",
            after_live=self.after_live,
            behind=self.behind,
            until=None if self.said else body.until_forwards,
            separated=self.separated,
        )
        return _request(self.mirror, live.rid, live.fed, sampling, purpose, **more)

    # During.

    async def run(self) -> AsyncIterator[dict]:
        """Yields start, text..., end. However it is left, the worker is free afterwards."""
        manager, live, done = self.service.manager, self.live, False
        try:
            out: dict = {"meta_info": {}}
            started = False
            async with aclosing(outputs(manager, self._sglang_request())) as replies:
                async for out in replies:
                    if not started:
                        started = True
                        begun = await _told(live.begun)
                        yield {"type": "start", "step": {**self._who(), **begun, "rid": live.rid}}
                    delta = self._take(out)
                    if delta["text"] or delta["output_ids"]:
                        if not live.reader:
                            self.mirror.tell_text(live, delta["text"])
                        yield {"type": "text", **delta}
            self._all_told()
            kind, data = await _told(live.ended)
            if kind == "dropped":
                raise ServiceError("the step was aborted", HTTPStatus.CONFLICT, "aborted")
            done = True
            yield {"type": "end", **self._record(data, out["meta_info"])}
        except ServiceError as error:
            if live.rid not in manager.rid_to_state:
                await self.service.hear_out(self.mirror, live)
            if error.status == HTTPStatus.NOT_FOUND:
                self.mirror.require_open()  # the team was closed while the request was on its way
            raise
        finally:
            self._all_told()
            if not done:
                self._let_go()

    async def result(self) -> dict:
        """The end event, without its type."""
        *_, end = [event async for event in self.run()]
        return {key: value for key, value in end.items() if key != "type"}

    def _take(self, out: dict) -> dict:
        live = self.live
        ids, text = list(out.get("output_ids") or []), out.get("text") or ""
        if self.service.manager.incremental_streaming_output:
            ids, text = live.output + ids, live.text + text
        delta = {"text": text[len(live.text) :], "output_ids": ids[len(live.output) :]}
        live.output, live.text = ids, text
        return delta

    def _let_go(self) -> None:
        """The request failed or its reader went away: nothing of it may stay."""
        live = self.live
        if live.ended.done():
            return
        if live.rid in self.service.manager.rid_to_state:
            self.service.manager.abort_request(live.rid)
        else:
            # It was on its way to the scheduler, or has already ended there.
            self.service.later(self.service.hear_out(self.mirror, live))

    def _all_told(self) -> None:
        self.live.told = True
        self.mirror.flush()

    # After.

    def _who(self) -> dict:
        who = self.mirror.who(self.live)
        return {"team": self.mirror.name, **who, "reader": self.reader}

    def _record(self, data: dict, meta_info: dict) -> dict:
        """The reply of docs/http.md from what the scheduler said at the end."""
        live = self.live
        tokens = data.get("tokens", [])
        step = {
            **self._who(),
            "index": data.get("index"),
            "fed_tokens": data["fed_tokens"],
            "output_tokens": data["output_tokens"],
            "published_tokens": len(tokens),
            "forwards": data["forwards"],
            "team_forwards": data["team_forwards"],
            "history_start": data["history_start"],
            "history_published": data.get("history_published"),
            "finish": {"type": "said"} if self.said else _finish(data["finish"]),
        }
        meta = {k: v for k, v in meta_info.items() if k != "finish_reason"}
        return {"text": live.text, "output_ids": live.output, "step": step, "meta_info": meta}


def _finish(reason: dict) -> dict:
    """SGLang's finish reason in the words of docs/http.md."""
    kind = reason["type"]
    if kind == "stop" and isinstance(reason.get("matched"), int):
        return {"type": "eos", "matched": reason["matched"]}
    if kind == "stop":
        return {"type": "stop", "matched": reason.get("matched")}
    return {"type": kind}
