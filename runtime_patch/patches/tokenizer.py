"""Patch of SGLang's tokenizer manager, the server process's end of things."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from runtime_patch.messages import TeamEvent, TeamReply
from runtime_patch.patches.base import Patch


class TokenizerPatch(Patch):
    """Gives the server process a team service, and SGLang's HTTP app the /hogwild routes.

    Why here: the dispatcher for what comes back from the scheduler is built here, in the
    one process that serves HTTP (or holds the Engine). Without the hogwild backends
    nothing is added."""

    target = "sglang.srt.managers.tokenizer_manager.TokenizerManager.init_request_dispatcher"
    parameters = ("self",)
    relies_on = ("self._result_dispatcher = TypeBasedDispatcher",)

    def around(self, original: Callable, manager: Any) -> None:
        from runtime_patch.server.service import TeamService
        from runtime_patch.server_args import hogwild_is_on

        original(manager)
        if not hogwild_is_on():
            return
        manager.hogwild = service = TeamService(manager)
        manager._result_dispatcher._mapping[TeamReply] = service.on_reply
        manager._result_dispatcher._mapping[TeamEvent] = service.on_event
        http_server = sys.modules.get("sglang.srt.entrypoints.http_server")
        if http_server is not None:
            from runtime_patch.server.routes import make_router

            http_server.app.include_router(make_router(service))
