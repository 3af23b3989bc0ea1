"""SGLang's generation for a team: requests with a purpose, their outputs, their failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec

from runtime_patch.errors import NOT_BEGUN, OUT_OF_FORWARDS, TeamError
from runtime_patch.server.team_state import TeamState
from runtime_patch.team_request import Kind, Purpose

# Stands where a request has no tokens of its own: SGLang takes none without any.
PLACEHOLDER = 0


def make_request(
    team: TeamState,
    rid: str,
    tokens: list[int],
    sampling_params: dict[str, Any],
    purpose: Purpose,
    **more: Any,
) -> Any:
    """SGLang's GenerateReqInput for a team's request. more: its further fields."""
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.runtime_context import get_parallel

    custom = {
        **(sampling_params.get("custom_params") or {}),
        "hogwild": msgspec.to_builtins(purpose),
    }
    return GenerateReqInput(
        rid=rid,
        input_ids=tokens or [PLACEHOLDER],
        sampling_params={**sampling_params, "custom_params": custom},
        routed_dp_rank=team.dp_rank if get_parallel().num_dp_ranks > 1 else None,
        **more,
    )


async def prefill(manager: Any, team: TeamState, kind: Kind, tokens: list[int]) -> None:
    """Compute a team's prompt or header with an ordinary request that samples nothing."""
    request = make_request(
        team,
        rid=f"{team.name}-{kind}",
        tokens=tokens,
        sampling_params={"max_new_tokens": 0},
        purpose=Purpose(kind, team.name, team.key),
    )
    async for _ in outputs(manager, request):
        pass


async def outputs(manager: Any, request: Any) -> AsyncIterator[dict]:
    """SGLang's outputs of a request; its failures as TeamErrors with a status."""
    try:
        async with aclosing(manager.generate_request(request)) as replies:
            async for out in replies:
                reason = out["meta_info"].get("finish_reason") or {}
                if reason.get("type") == "abort":
                    raise _aborted(reason)
                yield out
    except ValueError as error:
        raise TeamError(str(error)) from error
    except TeamError:
        raise
    except Exception as error:
        # SGLang raises an HTTPException for aborts that carry a server error.
        status = getattr(error, "status_code", None)
        if status is None:
            raise
        raise TeamError(str(getattr(error, "detail", error)), status) from error


def _aborted(reason: dict) -> TeamError:
    """SGLang's abort as an error: with the status it gives, else as somebody's abort."""
    status, message = reason.get("status_code"), reason.get("message") or "aborted"
    if status is None:
        return TeamError(message, HTTPStatus.CONFLICT, "aborted")
    kind = reason.get("err_type")
    ours = kind in (NOT_BEGUN, OUT_OF_FORWARDS)
    return TeamError(message, int(status), kind if ours else None)
