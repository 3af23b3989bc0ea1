"""Scores runs from 1 to 6 with a language model behind any OpenAI-compatible endpoint.

    python -m bench.judge runs/limo --url https://HOST/v1 --model NAME

Scores are kept in the run's folder (``judge.jsonl``) under a key made of the rubric's
text and version, the model and the exact messages, so that asking again costs nothing
and no score outlives a change of the question. The report shows what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import Progress

from hogwild_sgl.bench.judge.rubrics import HIGHEST, LOWEST, RUBRICS, Rubric
from hogwild_sgl.bench.run.store import cut_unfinished_line, read_results
from hogwild_sgl.errors import UserError
from hogwild_sgl.transcript import Result

SCORES = "judge.jsonl"
_SCORE = re.compile(
    rf"score\s*\**\s*[:：]\s*\**\s*([{LOWEST}-{HIGHEST}])(?!\d|\.\d)", re.IGNORECASE
)
_RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class JudgeScore:
    """One score: which run (``unit``), by what question (``key``), and the judge's reasons."""

    unit: str
    key: str
    rubric: str
    version: int
    model: str
    score: int
    reasons: str

    def __post_init__(self) -> None:
        if not LOWEST <= self.score <= HIGHEST:
            raise ValueError(f"a score is from {LOWEST} to {HIGHEST}, got {self.score}")


def read_score(text: str) -> int | None:
    """The last "Score: N" of a reply, None if it has none in range."""
    found = _SCORE.findall(text)
    return int(found[-1]) if found else None


def cache_key(model: str, messages: Sequence[Mapping[str, str]], version: int) -> str:
    content = json.dumps([model, list(messages), version], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


class Judge:
    """Asks one model. ``url`` ends before ``/chat/completions``, for instance in ``/v1``."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        *,
        attempts: int = 5,
        max_tokens: int = 1024,
        timeout: float = 300.0,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"at least one attempt is needed, got {attempts}")
        self.url, self.model = url.rstrip("/"), model
        self._attempts, self._max_tokens = attempts, max_tokens
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(headers=headers, timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def ask(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, str]:
        """Score and whole reply. `UserError` if the endpoint refuses or never gives a score."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": 0,
            "max_tokens": self._max_tokens,
        }
        last = ""
        for attempt in range(self._attempts):
            if attempt:
                # The same question at temperature 0 would get the same useless reply.
                body = {**body, "temperature": 0.5, "seed": attempt}
            try:
                response = self._http.post(f"{self.url}/chat/completions", json=body)
            except httpx.TransportError as error:
                last = f"{type(error).__name__}: {error}"
                time.sleep(min(30.0, 2.0**attempt))
                continue
            if response.status_code in _RETRY_STATUS:
                last = f"HTTP {response.status_code}: {response.text[:200]}"
                time.sleep(_pause(response, attempt))
                continue
            if response.status_code >= 400:
                raise UserError(
                    f"The judge's endpoint refused: HTTP {response.status_code}: "
                    f"{response.text[:300]}",
                    "Check --url (it ends before /chat/completions), --model and the key.",
                )
            try:
                text = response.json()["choices"][0]["message"]["content"] or ""
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise UserError(
                    f"The judge's reply is not that of a chat endpoint: {response.text[:300]}",
                    "Check --url: it must be OpenAI-compatible and end before /chat/completions.",
                ) from error
            score = read_score(text)
            if score is not None:
                return score, text.strip()
            last = f"a reply without a score: {text[-200:]!r}"
        raise UserError(
            f"The judge gave no score in {self._attempts} attempts; the last was {last}",
            "Is the endpoint up, and the model able to follow the rubric?",
        )


def _pause(response: httpx.Response, attempt: int) -> float:
    try:
        return min(120.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return min(30.0, 2.0**attempt)


def read_scores(folder: str | Path) -> list[JudgeScore]:
    """The scores kept in a run's folder; none if it was never judged."""
    path = Path(folder) / SCORES
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as file:
        return [JudgeScore(**json.loads(line)) for line in file if line.endswith("\n")]


def judge_run(
    folder: str | Path,
    judge: Judge,
    rubric: Rubric,
    *,
    concurrency: int = 4,
    limit: int | None = None,
    max_chars: int = 60_000,
) -> Iterator[tuple[int, int, JudgeScore | None, str]]:
    """Judges every run in the folder that has no score by this question yet.

    Yields (done, all, new score or None, error) as they come, kept scores first. Appends
    each score to the folder at once.
    """
    path = Path(folder) / SCORES
    cut_unfinished_line(path)
    known = {score.key for score in read_scores(folder)}
    waiting, total = [], 0
    for record in read_results(folder):
        if limit is not None and total >= limit:
            break
        total += 1
        messages = rubric.messages(Result.from_json(json.dumps(record["result"])), max_chars)
        key = cache_key(judge.model, messages, rubric.version)
        if key not in known:
            waiting.append((record["unit"], key, messages))
    done = total - len(waiting)
    yield done, total, None, ""
    lock = threading.Lock()

    def one(unit: str, key: str, messages: list[dict[str, str]]) -> JudgeScore:
        value, reasons = judge.ask(messages)
        score = JudgeScore(unit, key, rubric.name, rubric.version, judge.model, value, reasons)
        with lock, open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(score), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return score

    with ThreadPoolExecutor(concurrency) as pool:
        futures = {pool.submit(one, *item): item[0] for item in waiting}
        for future in as_completed(futures):
            done += 1
            try:
                yield done, total, future.result(), ""
            except UserError as error:
                yield done, total, None, f"{futures[future]}: {error}"


app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(
    epilog="Example: `python -m bench.judge runs/free_text --url http://127.0.0.1:30001/v1 "
    "--model judge-model`, then `python -m bench.report runs/free_text`"
)
def main(
    run: Annotated[Path, typer.Argument(help="The folder of a finished or running benchmark.")],
    url: Annotated[str, typer.Option(help="Endpoint, without /chat/completions.")],
    model: Annotated[str, typer.Option(help="The model's name at that endpoint.")],
    rubric: Annotated[
        str, typer.Option(help="What is judged: collaboration, or answer (open questions).")
    ] = "collaboration",
    api_key_env: Annotated[
        str, typer.Option(help="Environment variable that holds the key, if one is needed.")
    ] = "OPENAI_API_KEY",
    concurrency: Annotated[int, typer.Option(min=1, help="Questions asked at a time.")] = 4,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N runs.")] = None,
    max_chars: Annotated[
        int, typer.Option(min=1000, help="Longer transcripts lose steps in the middle.")
    ] = 60_000,
) -> None:
    """Let a model score each run of a benchmark from 1 to 6.

    The model is behind any OpenAI-compatible endpoint, and does not see program or layout.
    Scores that are there already are kept. `python -m bench.report` shows them.
    """
    console = Console(stderr=True)
    if rubric not in RUBRICS:
        raise typer.BadParameter(f"--rubric is one of {', '.join(RUBRICS)}")
    judge = Judge(url, model, os.environ.get(api_key_env))
    errors: list[str] = []
    scores: list[int] = []
    try:
        with Progress(console=console) as progress:
            bar = progress.add_task("judging")
            for done, total, score, error in judge_run(
                run,
                judge,
                RUBRICS[rubric],
                concurrency=concurrency,
                limit=limit,
                max_chars=max_chars,
            ):
                progress.update(bar, total=total, completed=done)
                if score:
                    scores.append(score.score)
                if error:
                    errors.append(error)
    except UserError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from None
    finally:
        judge.close()
    mean = f", mean {sum(scores) / len(scores):.2f}" if scores else ""
    console.print(f"{len(scores)} new scores{mean}, {len(errors)} failed.")
    for error in errors[:5]:
        console.print(f"[red]{error}[/red]")
    raise typer.Exit(1 if errors else 0)


if __name__ == "__main__":
    app()
