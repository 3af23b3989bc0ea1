"""Patch of the place where the scheduler makes its requests."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from runtime_patch.errors import TeamError
from runtime_patch.patches.access import SCHEDULER, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.scheduler.admission import check_pool
from runtime_patch.scheduler.step_req import StepReq, refuse
from runtime_patch.team_request import Purpose


class RequestClassPatch(Patch):
    """Makes a team's step, reader or say a StepReq, and expects its prompt and headers.

    Why here: SGLang calls this its extension point for request-local state. What the
    request is for travels in ``sampling_params.custom_params["hogwild"]``."""

    target = f"{SCHEDULER}._create_generation_req"
    parameters = ("self", "recv_req", "args", "kwargs")
    relies_on = ("return Req(*args, **kwargs)",)

    def around(self, original: Callable, scheduler: Any, recv_req: Any, *args, **kwargs) -> Any:
        req = original(scheduler, recv_req, *args, **kwargs)
        wanted = (recv_req.sampling_params.custom_params or {}).get("hogwild")
        if wanted is None:
            return req
        teams = teams_of(scheduler)
        if teams is None:
            return refuse(
                req,
                "this server does not run teams: start it with --attention-backend hogwild "
                "--radix-cache-backend hogwild (or `hogwild serve`)",
                HTTPStatus.NOT_IMPLEMENTED,
            )
        try:
            purpose = msgspec.convert(wanted, Purpose)
        except msgspec.ValidationError as error:
            message = f"custom_params.hogwild belongs to the /hogwild routes: {error}"
            return refuse(req, message, HTTPStatus.BAD_REQUEST)
        try:
            teams.requests.require_key(purpose.team, purpose.key)
            check_pool(len(req.origin_input_ids), scheduler.token_to_kv_pool_allocator.size)
            if purpose.kind.is_part:
                teams.requests.expect_part(req.rid, purpose.team, purpose.kind)
                return req
            step = StepReq(*args, purpose=purpose, **kwargs)
            teams.requests.admit(step)
            return step
        except TeamError as error:
            teams.requests.report_refused(purpose.team, req.rid)
            return refuse(req, str(error), error.status, error.type)
