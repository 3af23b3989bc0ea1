"""A backend for SGLang programs that uses the model's own chat template.

    sgl.set_default_backend(hogwild.Endpoint("http://127.0.0.1:30000"))

``s.system``, ``s.user`` and ``s.assistant`` record messages; text after the last role, and
whatever is generated, is the assistant's turn. A program without roles sends its text as
it is. Works with any SGLang server; teams need one with the patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from sglang.lang.backend.base_backend import BaseBackend
from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.lang.choices import ChoicesDecision, ChoicesSamplingMethod
from sglang.lang.interpreter import ProgramState, StreamExecutor
from sglang.lang.ir import SglSamplingParams

from hogwild_sgl.client.client import Client
from hogwild_sgl.errors import ServerGone
from hogwild_sgl.lang import scoring
from hogwild_sgl.lang.chat import SHOWN, conversation
from hogwild_sgl.lang.requests import logprobs_of, sampling_of

SEED = "hogwild_sampling_seed"


def set_seed(s: ProgramState, seed: int) -> None:
    """Gives the state's next generations this ``sampling_seed`` (see hogwild_sgl.seeds)."""
    setattr(s.stream_executor, SEED, seed)


class Endpoint(RuntimeEndpoint):
    """url, api_key, timeout: see Client. chat_template_kwargs: given to the chat template."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 300.0,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        # Not RuntimeEndpoint's: it guesses a chat template, and waits without a limit.
        BaseBackend.__init__(self)
        self.client = Client(url, api_key=api_key, timeout=timeout)
        self.base_url, self.api_key, self.verify = self.client.url, api_key, None
        self.model_info = self.client.request("GET", "/model_info")
        self.chat_template = SHOWN
        self.chat_template_kwargs = dict(chat_template_kwargs or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the connections; for when no program uses the backend any more."""
        self.client.close()

    def cache_prefix(self, prefix_str: str) -> None:
        # A traced prefix shows roles the way SHOWN does, which is not what is sent.
        if not prefix_str.startswith(tuple(p for p, _ in SHOWN.role_prefix_and_suffix.values())):
            body = {"text": prefix_str, "sampling_params": {"max_new_tokens": 0}}
            self.client.generate(body)

    def generate(self, s: StreamExecutor, sampling_params: SglSamplingParams) -> tuple[Any, Any]:
        reply = self.client.generate(self._body(s, sampling_params))
        if isinstance(reply, list):  # n > 1
            return [one["text"] for one in reply], [one["meta_info"] for one in reply]
        return reply["text"], reply["meta_info"]

    def generate_stream(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> Iterator[tuple[str, Any]]:
        if sampling_params.n > 1:
            raise ValueError("gen(n=...) cannot be streamed; fork the state instead")
        done, finished = "", False
        for message in self.client.stream_generate(self._body(s, sampling_params)):
            delta = message["text"][len(done) :]
            done += delta
            finished = bool(message["meta_info"].get("finish_reason"))
            yield delta, message["meta_info"]
        if not finished:
            raise ServerGone(f"The server at {self.base_url} broke off in the middle of a text.")

    def select(
        self,
        s: StreamExecutor,
        choices: list[str],
        temperature: float,
        choices_method: ChoicesSamplingMethod,
    ) -> ChoicesDecision:
        if temperature > 1e-5:
            raise ValueError("sgl.select has no temperature; leave it at 0")
        context = self._ids(s, "")
        found = scoring.candidates(context, [self._ids(s, choice) for choice in choices])

        def score(candidate: scoring.Candidate) -> list[Any]:
            # The entry before the choice has to be there: a prompt's first has no score.
            start = max(0, len(candidate.ids) - candidate.length - 1)
            return scoring.score_ids(self.client, candidate.ids, start)[-candidate.length :]

        return scoring.decide(choices, found, choices_method, score, self.client)

    def commit_lazy_operations(self, s: StreamExecutor) -> None:
        body = {**self._prompt(s), "sampling_params": {"max_new_tokens": 0}}
        self.client.generate(body)

    def fill_image(self, s: StreamExecutor) -> None:
        raise ValueError("hogwild.Endpoint has no images; use sgl.RuntimeEndpoint for them")

    def _body(self, s: StreamExecutor, params: SglSamplingParams) -> dict[str, Any]:
        sampling = sampling_of(self, params)
        seed = getattr(s, SEED, None)
        if seed is not None:
            sampling["sampling_seed"] = seed
        return {**self._prompt(s), "sampling_params": sampling, **logprobs_of(params)}

    def _prompt(self, s: StreamExecutor) -> dict[str, Any]:
        if s.images_:
            self.fill_image(s)
        talk = conversation(s)
        if talk is None:
            if not s.text_:
                raise ValueError("generation before any text; append some text first")
            return {"text": s.text_}
        return {
            "input_ids": self.client.render(talk.messages, talk.turn, self.chat_template_kwargs)
        }

    def _ids(self, s: StreamExecutor, behind: str) -> list[int]:
        """Token ids of the state's whole prompt with ``behind`` after it."""
        talk = conversation(s)
        if talk is None:
            # As SGLang tokenises a prompt: with the special tokens.
            body = {"prompt": s.text_ + behind}
            return list(self.client.request("POST", "/v1/tokenize", body)["tokens"])
        return self.client.render(talk.messages, talk.turn + behind, self.chat_template_kwargs)
