"""A program that runs SGLang's Engine in process, on two tensor-parallel ranks, and a team
in it. Prints what it got as JSON. Run by test_engine.py: python -m ... MODEL"""

from __future__ import annotations

import json
import sys

import sglang as sgl

from runtime_patch.server.schemas import OpenTeam, WriteStep
from runtime_patch.server.step import StepHandler

GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
PROMPT = list(range(9, 60))


def main(model: str) -> None:
    engine = sgl.Engine(
        model_path=model,
        attention_backend="hogwild",
        radix_cache_backend="hogwild",
        dtype="float32",
        tp_size=2,
        max_total_tokens=3000,
        log_level="info",
    )
    try:
        generated = engine.generate(input_ids=PROMPT, sampling_params=GREEDY)
        team = engine.loop.run_until_complete(work(engine.tokenizer_manager.hogwild))
    finally:
        engine.shutdown()
    print(json.dumps({"prompt": PROMPT, "generated": generated, **team}))


async def work(service) -> dict:
    team = await service.open(OpenTeam(input_ids=PROMPT))
    steps = []
    for worker in ("Alice", "Bob", "Alice"):
        body = WriteStep(worker=worker, input_ids=[70], sampling_params=GREEDY, end="none")
        steps.append(await StepHandler.begin(service, team, body).result())
    snapshot = await service.snapshot(team)
    await service.close(team)
    return {"steps": steps, "snapshot": snapshot, "teams": (await service.about())["teams"]}


if __name__ == "__main__":
    main(sys.argv[1])
