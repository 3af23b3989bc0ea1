"""Bodies of the /hogwild routes, checked by pydantic. See docs/http.md."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from runtime_patch.team_request import MAX_WORKERS, MIN_WORKERS


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _no_half_characters(cls, given: Any) -> Any:
        """JSON can spell one half of a surrogate pair, which no tokenizer takes and no reply
        can send back."""
        left = [given]
        while left:
            value = left.pop()
            if isinstance(value, str):
                try:
                    value.encode()
                except UnicodeEncodeError as error:
                    raise ValueError(
                        f"{value!a} is no text: it has half a surrogate pair at {error.start}"
                    ) from error
            elif isinstance(value, dict):
                left += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                left += value
        return given


def _one_of(given: dict[str, Any], required: bool = True) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1 or (required and not names):
        raise ValueError(f"give exactly one of {', '.join(given)}")


class Formatting(Body):
    """The two fixed headers of a view."""

    header_others: str | None = None
    header_others_ids: list[int] | None = None
    header_own: str | None = None
    header_own_ids: list[int] | None = None
    headers: Literal["isolated", "prompt"] = "isolated"

    @model_validator(mode="after")
    def _text_or_ids(self) -> Formatting:
        for name in ("header_others", "header_own"):
            _one_of({n: getattr(self, n) for n in (name, f"{name}_ids")}, required=False)
        return self


class OpenTeam(Body):
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    input_ids: list[int] | None = None
    workers: list[str] = ["Alice", "Bob"]
    layout: str = "combined"
    formatting: Formatting = Field(default_factory=Formatting)
    seed: int = 0
    idle_timeout: float | None = Field(default=600, gt=0)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("workers")
    @classmethod
    def _workers(cls, names: list[str]) -> list[str]:
        if not MIN_WORKERS <= len(names) <= MAX_WORKERS:
            raise ValueError(f"a team has {MIN_WORKERS} to {MAX_WORKERS} workers, got {len(names)}")
        if len(set(names)) != len(names) or not all(name.strip() for name in names):
            raise ValueError("workers' names must be distinct and not empty")
        return names

    @model_validator(mode="after")
    def _one_prompt(self) -> OpenTeam:
        given = {n: getattr(self, n) for n in ("prompt", "messages", "input_ids")}
        _one_of(given)
        if not next(value for value in given.values() if value is not None):
            raise ValueError("the prompt is empty")
        return self


class WriteStep(Body):
    worker: int | str | None = None
    reader: bool = False
    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: dict[str, Any] = Field(default_factory=dict)
    end: Literal["sentence", "none"] = "sentence"
    after_live: bool = False
    separator: str | None = None
    number: int | None = Field(default=None, ge=1)
    until_forwards: int | None = Field(default=None, ge=1)
    stream: bool = False
    return_logprob: bool = False
    logprob_start_len: int = Field(default=-1, ge=-1)
    top_logprobs_num: int = Field(default=0, ge=0)
    token_ids_logprob: list[int] | None = None

    @model_validator(mode="after")
    def _check(self) -> WriteStep:
        _one_of({"text": self.text, "input_ids": self.input_ids}, required=False)
        if self.worker is None and not self.reader:
            raise ValueError("name the worker, or make it a reader")
        if self.after_live and self.reader:
            raise ValueError("after_live is for a worker's step, not for a reader")
        if self.after_live and not (self.text or self.input_ids):
            raise ValueError("a step after the live one needs a text to begin with")
        if self.separator is not None and not (self.after_live and self.text):
            raise ValueError("separator is for the text of a step sent with after_live")
        if self.reader and not (self.number is None and self.until_forwards is None):
            raise ValueError("number and until_forwards are for a worker's step, not for a reader")
        return self


class Say(Body):
    worker: int | str | None = None
    text: str | None = None
    input_ids: list[int] | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Say:
        _one_of({"text": self.text, "input_ids": self.input_ids})
        return self


class Lockstep(Body):
    workers: list[int | str]


class AbortStep(Body):
    worker: int | str
    number: int | None = Field(default=None, ge=1)
