"""What a worker's state shows of a step that the driver asked for."""

from __future__ import annotations

from sglang.lang.ir import SglConstantText

from hogwild_sgl.driver.commands import Write
from hogwild_sgl.lang.core import Link


class FedText(SglConstantText):
    """The text that a step is fed.

    It is known when the worker's thread comes to it: whether a step asked for ahead of time
    is fed the separator depends on how the one before it ended.
    """

    def __init__(self, write: Write, link: Link) -> None:
        super().__init__(write.text)
        self._separator, self._link = write.separator, link

    @property
    def value(self) -> str:
        return ("" if self._link.separated else self._separator) + self._text

    @value.setter
    def value(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"FedText({self._text!r})"
