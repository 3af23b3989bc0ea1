"""What a patch of SGLang is."""

from __future__ import annotations

import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from sglang.srt.plugins.hook_registry import HookRegistry, HookType


class PatchMoved(RuntimeError):
    """SGLang's side of a patch is not what the patch was written for."""


class Patch(ABC):
    """One hook on one function of SGLang.

    target: dotted path of the function.
    parameters: the names of its parameters, as the hook passes or reads them.
    relies_on: pieces of its source that the hook counts on.
    versions: SGLang versions it was tested with.
    """

    target: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    relies_on: ClassVar[tuple[str, ...]] = ()
    versions: ClassVar[tuple[str, ...]] = ("0.5.23",)

    @abstractmethod
    def around(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        """Called in place of the target, which is ``original``."""

    def register(self) -> None:
        HookRegistry.register(self.target, self.around, HookType.AROUND)

    def check(self) -> None:
        """Raise PatchMoved if SGLang's function is not there or has changed its shape."""
        try:
            target = pkgutil.resolve_name(self.target)
            function = inspect.unwrap(getattr(target, "__func__", target))
        except (ImportError, AttributeError) as error:
            raise PatchMoved(f"{self.target} is gone: {error}") from error
        found = tuple(inspect.signature(function).parameters)
        if found != self.parameters:
            raise PatchMoved(f"{self.target} takes {found}, the patch expects {self.parameters}")
        source = inspect.getsource(function)
        missing = [piece for piece in self.relies_on if piece not in source]
        if missing:
            raise PatchMoved(f"{self.target} no longer contains {missing}")
