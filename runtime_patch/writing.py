"""Writing for a team: from a request body to SGLang's request and back to a record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import ServiceError
from runtime_patch.mirror import LiveStep, TeamMirror
from runtime_patch.schemas import Say, WriteStep
from runtime_patch.service import TeamService
from runtime_patch.teams import Kind

END_TIMEOUT = 60.0


def part_request(mirror: TeamMirror, kind: Kind, tokens: list[int]) -> Any:
    """An ordinary request that prefills the prompt or a header; it samples nothing."""
    return _request(
        mirror,
        rid=f"{mirror.name}-{kind}",
        tokens=tokens,
        sampling_params={"max_new_tokens": 0},
        hogwild={"kind": str(kind), "team": mirror.name},
    )


def _request(
    mirror: TeamMirror,
    rid: str,
    tokens: list[int],
    sampling_params: dict,
    hogwild: dict,
    **more: Any,
) -> Any:
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.runtime_context import get_parallel

    custom = {**(sampling_params.get("custom_params") or {}), "hogwild": hogwild}
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
        async for out in manager.generate_request(request):
            reason = out["meta_info"].get("finish_reason") or {}
            if reason.get("type") == "abort":
                status = reason.get("status_code") or HTTPStatus.CONFLICT
                raise ServiceError(reason.get("message") or "aborted", int(status), "aborted")
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


async def run_to_end(manager: Any, request: Any) -> dict:
    """The last output of a request."""
    return [out async for out in outputs(manager, request)][-1]


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
        self.live = self._begin()

    # Before.

    def _check(self) -> None:
        if self.said:
            return
        if self.body.end == "sentence" and not self.service.texts.has_tokenizer:
            raise ServiceError('this server has no tokenizer: use "end": "none"')
        if self.body.sampling_params.get("n", 1) != 1:
            raise ServiceError("a step is one text: n must be 1")
        new = self.body.sampling_params.get("max_new_tokens", 128)
        if not isinstance(new, int) or new < (0 if self.reader else 1):
            raise ServiceError(f"max_new_tokens must be a positive whole number, got {new!r}")

    def _begin(self) -> LiveStep:
        mirror, loop = self.mirror, asyncio.get_running_loop()
        state = None if self.worker is None else mirror.workers[self.worker]
        carried = [] if state is None or state.carried is None else [state.carried]
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
        mirror.begin(live)
        return live

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
        hogwild = {
            "kind": str(kind),
            "team": self.mirror.name,
            "worker": self.worker,
            "ends_by_rule": not self.said and body.end == "sentence",
        }
        return _request(self.mirror, live.rid, live.fed, sampling, hogwild, **more)

    # During.

    async def run(self) -> AsyncIterator[dict]:
        """Yields start, text..., end. However it is left, the worker is free afterwards."""
        manager, live, done = self.service.manager, self.live, False
        try:
            out: dict = {"meta_info": {}}
            started = False
            async for out in outputs(manager, self._sglang_request()):
                if not started:
                    started = True
                    begun = await asyncio.wait_for(asyncio.shield(live.begun), END_TIMEOUT)
                    yield {"type": "start", "step": {**self._who(), **begun, "rid": live.rid}}
                delta = self._take(out)
                if delta["text"] or delta["output_ids"]:
                    if not live.reader:
                        told = {"type": "text", "text": delta["text"], **self.mirror.who(live)}
                        self.mirror.tell(told)
                    yield {"type": "text", **delta}
            kind, data = await asyncio.wait_for(asyncio.shield(live.ended), END_TIMEOUT)
            if kind == "dropped":
                raise ServiceError("the step was aborted", HTTPStatus.CONFLICT, "aborted")
            done = True
            yield {"type": "end", **self._record(data, out["meta_info"])}
        finally:
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
            # SGLang refused it before the scheduler knew of it, or has already ended it.
            self.service.on_refused(self.mirror, live)

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
