"""An error that a person can act on."""

from __future__ import annotations


class Problem(Exception):
    """What went wrong, and what to do about it.

    The command line prints both and exits with status 1; a Python caller sees them in
    ``str(error)``.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy
