"""Trains the worklist model on simulated collaborations.

    python -m bench.worklist.train --out runs/worklist-model

Runs on what there is: a few hours on two CPU cores, minutes on a GPU. Started again with
the same --out it goes on from the last checkpoint. The finished model lies in OUT/model.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hogwild_sgl.bench.worklist import attention
from hogwild_sgl.bench.worklist.examples import IGNORED, Batch, Encoder, batches, lists, teams
from hogwild_sgl.bench.worklist.model import new_model
from hogwild_sgl.bench.worklist.simulate import Play
from hogwild_sgl.worklist import MARK, tokenizer
from hogwild_sgl.worklist.task import Split


@dataclass(frozen=True)
class Lesson:
    """What is shown (see :meth:`Training._examples`), of at most ``largest`` items.

    It ends when the loss is below ``goal`` (nats a token, 0 is the best possible), or after the
    share ``longest`` of the updates, whichever is first. The last one does not end.
    """

    kind: str
    largest: int
    goal: float
    longest: float


# Short lists first: what is learned on them carries over to longer ones, and is learned there
# many times as fast.
LESSONS = (
    *(Lesson("copy", largest, 0.15, 0.1) for largest in (4, 8, 24)),
    *(Lesson("choose", largest, 0.01, 0.12) for largest in (12, 24)),
    *(Lesson("teams", largest, 0.0, longest) for largest, longest in ((14, 0.05), (24, 1.0))),
)
LISTS = 0.25  # of the examples, among those of teams
EVEN = 0.25  # see losses
WARMUP = 100  # updates
_SMOOTH = 0.9  # of the loss so far in its running mean
HELD_OUT = 48  # plays of test items to look at


@dataclass(frozen=True)
class Setting:
    """updates: optimizer steps. tokens: per update. rate: the highest learning rate."""

    updates: int
    tokens: int
    rate: float
    seed: int

    def __post_init__(self) -> None:
        if min(self.updates, self.tokens) < 1 or not 0 < self.rate < 1:
            raise ValueError(f"not a training setting: {self}")

    def rate_at(self, update: int) -> float:
        """Linear warm-up, then a cosine to a hundredth."""
        if update < WARMUP:
            return self.rate * (update + 1) / WARMUP
        along = (update - WARMUP) / max(1, self.updates - WARMUP)
        return self.rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, along))))


class Training:
    """A model, its optimizer and where they are; saved and loaded as one."""

    def __init__(self, setting: Setting, out: Path, device: str):
        torch.manual_seed(setting.seed)
        self.setting, self.out, self.device = setting, out, device
        self.tokenizer, self.encoder = tokenizer.build(), Encoder()
        self.model = new_model(len(self.tokenizer), self.encoder.names).to(device)
        self.model.set_attn_implementation(attention.NAME)
        self.optimizers = _optimizers(self.model, setting.rate)
        self.update = 0
        self.lesson, self.lesson_began, self.recent = 0, 0, math.inf
        rng = random.Random(f"held out {setting.seed}")
        self.held_out = list(itertools.islice(teams(rng, Split.TEST, 24), HELD_OUT))
        out.mkdir(parents=True, exist_ok=True)
        self._load()

    def run(self) -> Iterator[dict]:
        """Trains; yields a record of figures every 100 updates."""
        examples, losses, began = None, [], time.time()
        while self.update < self.setting.updates:
            if self._next_lesson_begins() or examples is None:
                examples = batches(
                    self._examples(LESSONS[self.lesson]), self.encoder, self.setting.tokens
                )
            losses.append(self._step(next(examples)))
            if math.isinf(self.recent):
                self.recent = losses[-1]
            self.recent += (1 - _SMOOTH) * (losses[-1] - self.recent)
            self.update += 1
            if self.update % 100 == 0 or self.update == self.setting.updates:
                figures = {"update": self.update, "lesson": self.lesson}
                figures["loss"] = sum(losses) / len(losses)
                figures |= {"seconds": time.time() - began, **self.test()}
                losses = []
                self._save(figures)
                yield figures

    def _next_lesson_begins(self) -> bool:
        """Goes on to the next lesson when it is time."""
        lesson = LESSONS[self.lesson]
        taken = self.update - self.lesson_began
        over = taken >= lesson.longest * self.setting.updates or self.recent < lesson.goal
        if not over or lesson is LESSONS[-1]:
            return False
        self.lesson, self.lesson_began, self.recent = self.lesson + 1, self.update, math.inf
        return True

    def _examples(self, lesson: Lesson) -> Iterator[Play]:
        """copy: the numbers of a list in other orders. choose: names as well, one at a time.
        teams: collaborations, and some lists."""
        rng = random.Random(f"{self.setting.seed} {self.update}")
        others = teams(rng, Split.TRAIN, lesson.largest)
        copy = lesson.kind == "copy"
        alone = lists(rng, lesson.largest, repeats=3 if copy else 1, names=not copy)
        share = LISTS if lesson.kind == "teams" else 1.0
        while True:
            yield next(alone if rng.random() < share else others)

    def _step(self, batch: Batch) -> float:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.setting.rate_at(self.update)
        weights = batch.weights[batch.labels != IGNORED].to(self.device)
        loss = (self._losses(batch) * weights).sum() / weights.sum()
        self.model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def _losses(self, batch: Batch) -> torch.Tensor:
        logits = self._logits(batch)
        return losses(logits.float(), batch.good(logits.shape[-1]).to(self.device))

    def _logits(self, batch: Batch) -> torch.Tensor:
        """For the pieces to learn: (n, vocabulary)."""
        where = [one.to(self.device) for one in batch.places]
        with torch.autocast(self.device, torch.bfloat16):
            hidden = attention.hidden_states(self.model, batch.ids.to(self.device), where)
            return self.model.lm_head(hidden[(batch.labels != IGNORED).to(self.device)])

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Shares of the held-out steps where all that follows the choice is right to the last
        piece (line), and where the choice is a good one (choice)."""
        lines, choices = [], []
        for play in self.held_out:
            said = iter(self._logits(self.encoder.batch([play])).argmax(-1).tolist())
            for segment, last in sorted(play.computed.items()):
                right = {
                    index: self.encoder.pieces.get(next(said)) in play.good_at(segment, index)
                    for index, learn in enumerate(play.learn[segment][: last + 1])
                    if learn
                }
                chosen = play.chosen.get(segment, last + 1)
                if chosen <= last:
                    choices.append(right[chosen])
                if last + 1 == len(play.segments[segment]) > chosen:
                    lines.append(all(good for index, good in right.items() if index > chosen))
        return {"line": sum(lines) / len(lines), "choice": sum(choices) / len(choices)}

    def export(self) -> Path:
        """The model as others load it, in bfloat16."""
        folder = self.out / "model"
        copy = new_model(len(self.tokenizer), self.encoder.names).to(torch.bfloat16)
        copy.load_state_dict(self.model.state_dict())
        copy.generation_config.eos_token_id = 0
        copy.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / MARK).write_text(json.dumps(asdict(self.setting)) + "\n")
        return folder

    def _save(self, figures: dict) -> None:
        with (self.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(figures) + "\n")
        state = {
            "update": self.update,
            "lesson": (self.lesson, self.lesson_began, self.recent),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        torch.save(state, self.out / "checkpoint.new")
        (self.out / "checkpoint.new").replace(self.out / "checkpoint.pt")

    def _load(self) -> None:
        path = self.out / "checkpoint.pt"
        if path.exists():
            state = torch.load(path, map_location=self.device)
            self.update = state["update"]
            self.lesson, self.lesson_began, self.recent = state["lesson"]
            self.model.load_state_dict(state["model"])
            for optimizer, its in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(its)


def losses(logits: torch.Tensor, good: torch.Tensor) -> torch.Tensor:
    """What each piece costs, in nats, with two parts: how unlikely it is that a good piece is
    drawn rather than one that is not good, the mean over the good ones, each by itself; and,
    with the weight EVEN, how far the good ones are from equally likely among themselves.
    (n, vocabulary), which are good, to (n,).

    To imitate the draw of the simulation would be learned through the noise of the draw, and
    many names with a small share each would seem less likely than a wrong end. If it were
    enough that any good name is drawn, those not learned yet would be left to the last, and
    workers that choose at once would choose the same.
    """
    count = good.sum(-1)
    bad = logits.masked_fill(good, -math.inf).logsumexp(-1, keepdim=True)
    missed = (torch.nn.functional.softplus(bad - logits) * good).sum(-1) / count
    share = logits - logits.masked_fill(~good, -math.inf).logsumexp(-1, keepdim=True)
    uneven = -(share * good).sum(-1) / count - count.log()
    return missed + EVEN * uneven


def _optimizers(model: torch.nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the embeddings and the norms."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        matrix = parameter.ndim == 2 and "embed" not in name
        (matrices if matrix else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.05),
    ]


def main(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, log and model.")] = Path(
        "runs/worklist-model"
    ),
    updates: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 6000,
    tokens: Annotated[int, typer.Option(min=1000, help="Tokens per step.")] = 6000,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 2.5e-3,
    seed: Annotated[int, typer.Option(help="Seed of weights and tasks.")] = 1,
) -> None:
    """Train the worklist model, or go on training it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    training = Training(Setting(updates, tokens, rate, seed), out, device)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        bar = progress.add_task("training", total=updates, completed=training.update)
        for figures in training.run():
            text = "  ".join(f"{key} {figures[key]:.4f}" for key in ("loss", "line", "choice"))
            lesson = LESSONS[figures["lesson"]]
            place = f"{figures['update']:6}  {lesson.kind} {lesson.largest:<3}"
            progress.console.print(f"{place} {text}", highlight=False)
            progress.update(bar, completed=training.update)
    print(f"The model is in {training.export()}.")


if __name__ == "__main__":
    typer.run(main)
