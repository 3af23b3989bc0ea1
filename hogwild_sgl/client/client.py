"""A client of the HTTP interface in docs/http.md.

    with Client("http://127.0.0.1:30000") as client:
        with client.open(prompt="...", workers=["Alice", "Bob"]) as team:
            reply = team.step(0, "**Alice [1]:** ", {"max_new_tokens": 200})

Calls block and can be made from many threads at once: a live step is one call in one
thread. A server that dies or goes silent gives ServerGone within ``timeout`` seconds of
its last sign of life; nothing waits for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from hogwild_sgl.client.records import (
    Snapshot,
    StepRecord,
    StepReply,
    StepStarted,
    StepText,
    TeamInfo,
    record_from,
    snapshot,
    step_reply,
    team_info,
)
from hogwild_sgl.errors import (
    PATCH_REMEDY,
    HogwildError,
    PatchNotActive,
    ProtocolError,
    ServerGone,
    TeamClosed,
    UnknownTeam,
    error_from,
)

StepMessage = StepStarted | StepText | StepReply


class Client:
    """One server. ``timeout``: seconds of silence after which it counts as gone."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 300.0) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is a positive number of seconds, got {timeout}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._http = httpx.Client(
            base_url=self.url,
            headers={
                # One thread may close an idle connection that another has just been given, and
                # its request would hang until the timeout (httpcore issue 1110). So none idle.
                "Connection": "close",
                **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            },
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
            # Each live step is a connection; a limit would queue workers behind each other.
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the connections. Teams stay open until closed or idle."""
        self._http.close()

    def info(self) -> dict[str, Any]:
        """``GET /hogwild``: versions, model, layouts, kernel, open teams.

        Raises PatchNotActive where the server is plain SGLang.
        """
        try:
            return self.request("GET", "/hogwild")
        except UnknownTeam as error:
            raise PatchNotActive(error.message, PATCH_REMEDY, status=404) from error

    def open(
        self,
        *,
        workers: Sequence[str],
        prompt: str | None = None,
        messages: Sequence[Mapping[str, str]] | None = None,
        input_ids: Sequence[int] | None = None,
        layout: str = "combined",
        formatting: Mapping[str, Any] | None = None,
        seed: int | None = None,
        idle_timeout: float | None = 600.0,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> OpenedTeam:
        """Opens a team; exactly one of prompt, messages and input_ids says what on."""
        given = {"prompt": prompt, "messages": messages, "input_ids": input_ids}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"give one of prompt, messages and input_ids, not {sorted(given)}")
        body: dict[str, Any] = {
            **given,
            "workers": list(workers),
            "layout": layout,
            "formatting": dict(formatting or {}),
            "idle_timeout": idle_timeout,
        }
        if seed is not None:
            body["seed"] = seed
        if chat_template_kwargs:
            body["chat_template_kwargs"] = dict(chat_template_kwargs)
        return OpenedTeam(self, team_info(self.request("POST", "/hogwild/teams", body)))

    def team(self, name: str) -> TeamHandle:
        """A team that somebody else opened: to watch it, say something, write in it."""
        return TeamHandle(self, name)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens (SGLang's own route)."""
        body = {"prompt": list(texts), "add_special_tokens": False}
        return [list(ids) for ids in self.request("POST", "/v1/tokenize", body)["tokens"]]

    def render(
        self,
        messages: Sequence[Mapping[str, str]],
        continuation: str = "",
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Messages through the model's own chat template, as token ids.

        The assistant's turn is open at the end and already holds ``continuation``.
        Raises BadRequest if the model has no chat template.
        """
        body: dict[str, Any] = {"messages": [dict(message) for message in messages]}
        if continuation:
            body["messages"].append({"role": "assistant", "content": continuation})
            body["continue_final_message"] = True
        if chat_template_kwargs:
            body["chat_template_kwargs"] = dict(chat_template_kwargs)
        return list(self.request("POST", "/v1/tokenize", body)["tokens"])

    def generate(self, body: Mapping[str, Any]) -> Any:
        """SGLang's ``/generate``, without streaming."""
        return self.request("POST", "/generate", body)

    def stream_generate(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """SGLang's ``/generate``, message by message."""
        with self._sse("POST", "/generate", {**body, "stream": True}) as messages:
            for message in messages:
                if "error" in message:
                    raise error_from(int(message["error"].get("code") or 500), message)
                yield message

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request and its JSON reply; errors as in :mod:`hogwild_sgl.errors`."""
        with self._reachable():
            response = self._http.request(method, path, json=body)
        return _json_or_error(response)

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ServerGone.unreachable(self.url, error) from error
        except httpx.TimeoutException as error:
            raise ServerGone(
                f"The server at {self.url} has been silent for {self.timeout:g} s.",
                "Is it stuck, or very busy? A larger `timeout` waits longer.",
            ) from error
        except httpx.TransportError as error:
            raise ServerGone(
                f"The server at {self.url} is gone ({type(error).__name__}: {error}).",
                "Is it running? `hogwild check --url URL` tells.",
            ) from error

    @contextmanager
    def _sse(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        patient: bool = False,
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """Server-sent events as dicts; leaving the context disconnects.

        patient: silence is no error (an event stream may have nothing to say).
        """
        extra: dict[str, Any] = {}
        if patient:
            extra["timeout"] = httpx.Timeout(self.timeout, read=None, pool=None)
        with self._reachable(), self._http.stream(method, path, json=body, **extra) as response:
            if response.status_code >= 400:
                response.read()
                raise _error(response)
            yield _events(response)


class TeamHandle:
    """A team on the server, by name."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._path = f"/hogwild/teams/{name}"

    def step(
        self,
        worker: int | str,
        text: str | Sequence[int],
        sampling_params: Mapping[str, Any],
        *,
        end: str = "sentence",
        **logprobs: Any,
    ) -> StepReply:
        """Writes one step of a worker and waits for its end.

        text: what is fed first, as a text or as token ids.
        logprobs: return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob.
        """
        return self._write(worker, False, text, sampling_params, end, logprobs)

    def read(
        self,
        text: str | Sequence[int],
        sampling_params: Mapping[str, Any],
        *,
        worker: int | str | None = None,
        end: str = "none",
        **logprobs: Any,
    ) -> StepReply:
        """A reader: sees the team as it is now, is never published, nobody sees it."""
        return self._write(worker, True, text, sampling_params, end, logprobs)

    def stream_step(
        self,
        worker: int | str | None,
        text: str | Sequence[int],
        sampling_params: Mapping[str, Any],
        *,
        reader: bool = False,
        end: str = "sentence",
        **options: Any,
    ) -> Iterator[StepMessage]:
        """StepStarted, StepText as tokens come, StepReply. Closing the iterator early
        disconnects, and the server drops the step whole.

        options: the rest of the body in docs/http.md (after_live, separator, number,
        until_forwards, return_logprob, ...). A step sent with ``after_live`` starts when its
        worker's live step has been published; StepNotBegun if it cannot."""
        body = _step_body(worker, reader, text, sampling_params, end, options)
        with self.client._sse("POST", f"{self._path}/steps", {**body, "stream": True}) as messages:
            ended = False
            for message in messages:
                yield _step_message(message)
                ended = message["type"] == "end"
            if ended:
                return
        raise ServerGone(f"The server at {self.client.url} broke off in the middle of a step.")

    def say(self, text: str, worker: int | str | None = None) -> StepRecord:
        """Publishes a text without generating: a worker's, or a voice from outside."""
        reply = self.client.request("POST", f"{self._path}/say", {"text": text, "worker": worker})
        return record_from(StepRecord, reply.get("step"))

    def abort(self, worker: int | str, number: int | None = None) -> bool:
        """Drops the worker's live step; False if it had none. number: only that step."""
        body = {"worker": worker, **({} if number is None else {"number": number})}
        reply = self.client.request("POST", f"{self._path}/abort", body)
        return bool(reply.get("aborted"))

    def lockstep(self, workers: Sequence[int | str]) -> None:
        """From now on the team's forwards wait for the next steps of these workers."""
        self.client.request("POST", f"{self._path}/lockstep", {"workers": list(workers)})

    def snapshot(self) -> Snapshot:
        return snapshot(self.client.request("GET", self._path))

    def events(self, *, hold: bool = False) -> Iterator[dict[str, Any]]:
        """The team's events as they happen, until it closes.

        hold: the team belongs to this connection; when it breaks, the team is closed.
        Waits without limit between events.
        """
        path = f"{self._path}/events" + ("?hold=true" if hold else "")
        with self.client._sse("GET", path, patient=True) as messages:
            yield from messages

    def close(self) -> None:
        """Closes the team and gives back what it holds. A closed team is no error."""
        try:
            self.client.request("DELETE", self._path)
        except (TeamClosed, UnknownTeam):
            pass

    def _write(
        self,
        worker: int | str | None,
        reader: bool,
        text: str | Sequence[int],
        sampling_params: Mapping[str, Any],
        end: str,
        logprobs: Mapping[str, Any],
    ) -> StepReply:
        body = _step_body(worker, reader, text, sampling_params, end, logprobs)
        return step_reply(self.client.request("POST", f"{self._path}/steps", body))


class OpenedTeam(TeamHandle):
    """A team that this client opened; a context manager that closes it.

    info: the server's reply to opening it.
    """

    def __init__(self, client: Client, info: TeamInfo) -> None:
        super().__init__(client, info.team)
        self.info = info

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except HogwildError:
            if error is None:
                raise


def _step_body(
    worker: int | str | None,
    reader: bool,
    text: str | Sequence[int],
    sampling_params: Mapping[str, Any],
    end: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    fed = {"text": text} if isinstance(text, str) else {"input_ids": list(text)}
    body = {
        **fed,
        "reader": reader,
        "sampling_params": dict(sampling_params),
        "end": end,
        **options,
    }
    if worker is not None:
        body["worker"] = worker
    return body


def _step_message(message: Mapping[str, Any]) -> StepMessage:
    kind = message.get("type")
    if kind == "start":
        return StepStarted(record_from(StepRecord, message.get("step")))
    if kind == "text":
        return StepText(str(message["text"]), tuple(message.get("output_ids") or ()))
    if kind == "end":
        return step_reply(message)
    if kind == "error":
        error = message.get("error") or {}
        raise error_from(int(error.get("status") or 500), {"error": error})
    raise ProtocolError(f"a step's stream holds a message of unknown type: {message!r}")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if not line.startswith("data:"):
            continue  # blank lines between events, and comments that keep a line alive
        data = line[5:].strip()
        if data != "[DONE]":  # read on until the server ends the stream
            yield json.loads(data)


def _json_or_error(response: httpx.Response) -> Any:
    if response.status_code >= 400:
        raise _error(response)
    try:
        return response.json()
    except ValueError as error:
        raise ProtocolError(f"the server's reply is not JSON: {response.text[:200]!r}") from error


def _error(response: httpx.Response) -> HogwildError:
    try:
        body = response.json()
    except ValueError:
        body = response.text
    return error_from(response.status_code, body)
