"""The executor behind a worker's state: SGLang's, for text that a team reads."""

from __future__ import annotations

from typing import Any

from sglang.lang.interpreter import StreamExecutor
from sglang.lang.ir import SglExpr, SglGen, SglRoleBegin

from hogwild_sgl.errors import TeamClosed
from hogwild_sgl.lang.chat import SHOWN


class WorkerExecutor(StreamExecutor):
    """Runs one worker's expressions in its own thread.

    Differs from SGLang's where that would hang or do something else than it seems:
    nothing can be appended after an error, and roles, forks and images are refused.
    """

    def __init__(self, source: StreamExecutor, backend: Any, name: str, text: str) -> None:
        self.name = name
        self.ended = False
        super().__init__(
            backend, source.arguments, source.default_sampling_para, SHOWN, source.stream
        )
        self.variables = dict(source.variables)
        self.text_ = text
        self.fork_start_text_pos = len(text)

    def submit(self, expr: SglExpr) -> None:
        # SGLang's executor would take it, never run it, and let the program wait for it.
        if self.error_ is not None:
            raise RuntimeError(f"{self.name} stopped with an error: {self.error_}") from self.error_
        if self.ended:
            raise TeamClosed(
                f"{self.name} has been joined, or its team closed; nothing can be appended"
            )
        super().submit(expr)

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            super().end()

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> Any:
        raise ValueError(
            f"{self.name} is a worker of a team and cannot be forked; fork the state that the "
            f"team was made from, or open a team with more workers"
        )

    def _execute_gen(self, expr: SglGen) -> None:
        super()._execute_gen(expr)
        if self.stream and (self.meta_info.get(expr.name) or {}).get("dropped"):
            self.variables[expr.name] = ""

    def _execute_role_begin(self, expr: SglRoleBegin) -> None:
        raise ValueError(
            f"{self.name} writes inside the assistant's turn; chat roles belong into the "
            f"prompt, before hogwild.fork"
        )

    def _execute_image(self, expr: SglExpr) -> None:
        raise ValueError("a worker's text cannot hold images")

    _execute_video = _execute_image
