"""The replay engine: a scheduler driven by hand, one given batch after another.

Used by ``hogwild replay`` to put chosen tokens through SGLang's own model runner, KV
pool and tree and the hogwild attention backend, with a chosen composition of every
forward, and to look at the logits.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runtime_patch.scheduler.forward_log import ForwardLog
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team_manager import TeamManager
from runtime_patch.team_request import Kind, Purpose

TEAM = "replayed"
POOL_TOKENS = 16384


class ReplayTeam:
    """One team on a model, without server or sampling. One per process.

    folder: a model in Hugging Face format; it runs on the CPU, in ``dtype``.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        layout: str,
        headers_after_prompt: bool,
        dtype: str = "float32",
    ):
        self._scheduler = _make_scheduler(folder, dtype)
        self._tree = self._scheduler.tree_cache
        self._teams = TeamManager(
            radix_cache=self._tree,
            emit=lambda kind, team, data: None,
            control=_NoControl(),
            context_length=self._scheduler.model_config.context_len,
            log=ForwardLog.from_environment(),
        )
        self._scheduler.tp_worker.model_runner.attn_backend.view_source = self._teams.forwards
        self._teams.commands.open(TEAM, workers, layout, headers_after_prompt)
        self._live: dict[int, StepReq] = {}
        self._steps = 0

    def store(self, kind: Kind, tokens: Sequence[int]) -> None:
        """Prefill the prompt, or a header (after the prompt: give prompt + header)."""
        from sglang.srt.managers.schedule_batch import Req

        req = Req(str(kind), "", array("q", tokens), _greedy())
        self._teams.requests.expect_part(req.rid, TEAM, kind)
        self._admit(req)
        self._run([req])
        self._release(req)

    def forward(self, workers: Sequence[int], fed: Sequence[Sequence[int]]) -> np.ndarray:
        """One model forward in which each worker feeds tokens. float32 logits ``[rows, vocab]``."""
        reqs = []
        for worker, tokens in zip(workers, fed, strict=True):
            if worker not in self._live:
                self._live[worker] = self._begin(worker, tokens)
            else:
                self._live[worker].origin_input_ids.extend(tokens)
            reqs.append(self._live[worker])
        logits = self._run(reqs)
        self._teams.forwards.count_forward(reqs)
        return logits

    def publish(self, worker: int) -> None:
        """End the worker's live step; its tokens join the published steps."""
        req = self._live.pop(worker)
        self._release(req)
        self._teams.forwards.finish_forward([req])

    @property
    def model(self) -> torch.nn.Module:
        """SGLang's model."""
        return self._scheduler.tp_worker.model_runner.model

    def close(self) -> int:
        """Close the team. Returns the KV tokens that are then neither free nor evictable."""
        from sglang.srt.managers.schedule_batch import FINISH_ABORT

        for req in self._live.values():
            req.to_finish = FINISH_ABORT()
            self._release(req)
            self._teams.forwards.finish_forward([req])
        self._teams.commands.close(TEAM)
        free = self._scheduler.token_to_kv_pool_allocator.available_size()
        return self._scheduler.max_total_num_tokens - free - self._tree.evictable_size()

    def _begin(self, worker: int, tokens: Sequence[int]) -> StepReq:
        self._steps += 1
        req = StepReq(
            f"step-{self._steps}",
            "",
            array("q", tokens),
            _greedy(),
            purpose=Purpose(Kind.STEP, TEAM, key="", worker=worker),
        )
        self._teams.requests.admit(req)
        self._admit(req)
        return req

    def _admit(self, req: Any) -> None:
        req.init_next_round_input(self._tree)
        req.lock = self._tree.lock(req.last_node)

    def _run(self, reqs: list[Any]) -> np.ndarray:
        from sglang.srt.managers.schedule_batch import ScheduleBatch

        scheduler = self._scheduler
        for req in reqs:
            req.refresh_fill_ids()
            req.extend_end = len(req.origin_input_ids)
        batch = ScheduleBatch.init_new(
            reqs,
            scheduler.req_to_token_pool,
            scheduler.token_to_kv_pool_allocator,
            self._tree,
            scheduler.model_config,
            enable_overlap=False,
            spec_algorithm=scheduler.spec_algorithm,
        )
        batch.prepare_for_extend()
        result = scheduler.run_batch(batch)
        for req in reqs:
            req.prefix_len = req.extend_end
        return result.logits_output.next_token_logits.float().cpu().numpy()

    def _release(self, req: Any) -> None:
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        if req.to_finish is not None:
            req.finished_reason, req.to_finish = req.to_finish, None
        else:
            req.finished_reason = FINISH_LENGTH(0)
        release_kv_cache(req, self._tree, checkpoint=True)


class _NoControl:
    """Replayed steps are ended by their owner; nothing is ever queued or aborted."""

    def abort(self, rid: str) -> None:
        raise RuntimeError(f"{rid} is live: publish or drop it first")

    enqueue = refuse = abort


def _greedy() -> Any:
    from sglang.srt.sampling.sampling_params import SamplingParams

    params = SamplingParams(max_new_tokens=0, temperature=0)
    params.normalize(None)
    return params


def _make_scheduler(folder: Path, dtype: str) -> Any:
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.plugins import load_plugins
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, ServerArgs

    load_plugins()
    torch.set_num_threads(1)
    args = ServerArgs(
        model_path=str(folder),
        device="cpu",
        dtype=dtype,
        attention_backend="hogwild",
        radix_cache_backend="hogwild",
        skip_tokenizer_init=True,
        max_total_tokens=POOL_TOKENS,
        log_level="error",
    )
    args.resolve_once()
    args.check_server_args()
    ports = PortArgs.init_new(args)
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    return Scheduler(args, ports)
