"""A decode forward on the CPU against the model's linear layers alone in eager PyTorch.

    python -m bench.forward_cpu [--model MODEL] [--workers 1,4] [--cache 1024]
        [--published 0] [--rounds 9]

A team of workers over one cache runs in SGLang's scheduler, driven by hand in this
process: no server, no sockets. In every round a team of each size decodes a few steps and the
linear layers are multiplied at as many rows, so that a busy machine slows all of them; what is
printed are medians over the rounds, and their ratios. HOGWILD_CPU_FORWARD (decoder, ops, torch)
chooses how the forward is computed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from hogwild_sgl.bench.speed.floor import Floor

STEPS = 8  # decoded in a turn
PUBLISHED = 24  # tokens of a published step
DECODED = 4096  # tokens a worker may write
# Longest first.
PARTS = ("step", "forward", "layers", "logits", "plan", "sampling")


class Clock:
    """Milliseconds spent in functions, by name."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)

    def watch(self, owner: Any, function: str, name: str) -> None:
        original = getattr(owner, function)

        def timed(*args, **kwargs):
            began = time.perf_counter()
            result = original(*args, **kwargs)
            self.times[name].append(1000 * (time.perf_counter() - began))
            return result

        setattr(owner, function, timed)

    def take(self) -> dict[str, float]:
        """The median of each, which then begin anew."""
        medians = {name: statistics.median(times) for name, times in self.times.items()}
        self.times.clear()
        return medians


class Loop:
    """SGLang's scheduler without its sockets, one round of its loop at a time."""

    def __init__(self, model: Path, tokens: int):
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import load_plugins
        from sglang.srt.runtime_context import SpawnRanks, publish
        from sglang.srt.server_args import PortArgs, ServerArgs

        load_plugins()
        args = ServerArgs(
            model_path=str(model),
            device="cpu",
            dtype="bfloat16",
            attention_backend="hogwild",
            radix_cache_backend="hogwild",
            skip_tokenizer_init=True,
            max_total_tokens=tokens,
            context_length=tokens,
            log_level="error",
        )
        args.resolve_once()
        args.check_server_args()
        ports = PortArgs.init_new(args)
        publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
        self.scheduler = Scheduler(args, ports)
        self.clock = Clock()
        runner = self.scheduler.tp_worker.model_runner
        for name, owner, function in (
            ("step", self, "step"),
            ("forward", runner.model, "forward"),
            ("layers", runner.model.model, "forward"),
            ("logits", runner.model.logits_processor, "forward"),
            ("plan", runner.attn_backend, "init_forward_metadata"),
            ("sampling", runner, "sample"),
        ):
            self.clock.watch(owner, function, name)

    @torch.no_grad()
    def step(self) -> None:
        scheduler = self.scheduler
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        if batch:
            scheduler.process_batch_result(batch, scheduler.run_batch(batch))
        scheduler.last_batch = batch

    def finish(self, req: Any) -> None:
        while not req.finished():
            self.step()


class DecodingTeam:
    """Workers of one team, each in the middle of a step, that stop when told.

    cache: tokens of the prompt and of ``published`` steps before it.
    """

    def __init__(self, loop: Loop, name: str, workers: int, cache: int, published: int):
        from sglang.srt.managers.schedule_batch import Req

        from runtime_patch.team_request import Kind

        self._loop, self._name = loop, name
        self._teams = teams = loop.scheduler.hogwild_teams
        vocabulary = loop.scheduler.model_config.vocab_size
        teams.commands.open(self._name, max(2, workers), "combined", False)
        prompt = cache - published * PUBLISHED
        for kind, length in ((Kind.PROMPT, prompt), (Kind.HEADER_OTHERS, 4), (Kind.HEADER_OWN, 4)):
            # The same in every round, so that it is computed once and found in the tree.
            tokens = _tokens(length, vocabulary, seed=length)
            part = Req(f"{self._name} {kind}", "", tokens, _greedy(0))
            teams.requests.expect_part(part.rid, self._name, kind)
            loop.scheduler._add_request_to_queue(part)
            loop.finish(part)
        for number in range(published):
            loop.finish(self._begin(number % workers, f"past {number}", PUBLISHED, 1))
        for worker in range(workers):
            self._begin(worker, "live", 4, DECODED)

    def _begin(self, worker: int, name: str, fed: int, decoded: int) -> Any:
        from runtime_patch.scheduler.step_req import StepReq
        from runtime_patch.team_request import Kind, Purpose

        vocabulary = self._loop.scheduler.model_config.vocab_size
        req = StepReq(
            f"{self._name} {worker} {name}",
            "",
            _tokens(fed, vocabulary, seed=worker),
            _greedy(decoded),
            purpose=Purpose(Kind.STEP, self._name, key="", worker=worker),
            vocab_size=vocabulary,
        )
        self._teams.requests.admit(req)
        self._loop.scheduler._add_request_to_queue(req)
        return req

    def __enter__(self) -> DecodingTeam:
        for _ in range(3):  # the steps' openings, and what is made on first use
            self._loop.step()
        self._loop.clock.take()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._teams.commands.close(self._name)
        while self._name in self._teams.store.teams:
            self._loop.step()


def _tokens(count: int, vocabulary: int, seed: int) -> array:
    generator = torch.Generator().manual_seed(seed)
    return array("q", torch.randint(1000, vocabulary, (count,), generator=generator).tolist())


def _greedy(tokens: int) -> Any:
    from sglang.srt.sampling.sampling_params import SamplingParams

    params = SamplingParams(max_new_tokens=tokens, temperature=0, ignore_eos=True)
    params.normalize(None)
    return params


def measure(
    loop: Loop, floor: Floor, teams: list[int], cache: int, published: int, rounds: int
) -> dict[int, dict[str, float]]:
    """By number of workers: median milliseconds of each part of a decode step, and of the
    linear layers alone. Teams of all sizes take turns."""
    kept: dict[int, dict[str, list[float]]] = {n: defaultdict(list) for n in teams}
    for number in range(rounds):
        for workers in teams:
            name = f"{workers} in round {number}"
            with DecodingTeam(loop, name, workers, cache, published):
                for _ in range(STEPS):
                    loop.step()
            for name, value in loop.clock.take().items():
                kept[workers][name].append(value)
            alone = 1000 * floor.linear_seconds(workers, rounds=STEPS)
            kept[workers]["linear alone"].append(alone)
    return {
        workers: {name: statistics.median(values) for name, values in parts.items()}
        for workers, parts in kept.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="model folder; the demo model by default")
    parser.add_argument("--workers", type=_numbers, default=[1, 2, 4, 8])
    parser.add_argument("--cache", type=int, default=1024)
    parser.add_argument("--published", type=int, default=0, help="steps of the history")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    os.environ.setdefault("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    model = options.model or _demo_model()
    loop = Loop(model, 4 * options.cache + 16384)
    if options.cache <= options.published * PUBLISHED:
        parser.error(f"published steps have {PUBLISHED} tokens each: give a larger --cache")
    floor = Floor.of(model, torch.bfloat16)
    print(f"{model.name}, {options.cache} cached, {torch.get_num_threads()} threads; ms, medians")
    columns = (*PARTS, "linear alone", "forward/linear", "tokens/s over 1 worker")
    print("workers", *columns, sep="  ")
    table = measure(loop, floor, options.workers, options.cache, options.published, options.rounds)
    first = table[options.workers[0]]["step"] / options.workers[0]
    for workers, times in table.items():
        times["forward/linear"] = times["forward"] / times["linear alone"]
        times["tokens/s over 1 worker"] = first * workers / times["step"]
        cells = [f"{times[name]:{len(name)}.2f}" for name in columns]
        print(f"{workers:7}", *cells, sep="  ")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _demo_model() -> Path:
    from hogwild_sgl.launch.demo_model import prepare

    return prepare()


if __name__ == "__main__":
    main()
