"""The words of the worklist task and its model."""

from __future__ import annotations

ITEM_NAMES = tuple(
    """ant bat bear bee boar cat cow crab deer dog dove eel elk fox frog goat hare hawk ibis
    kite lamb lion mole moth newt owl pig rat seal toad wolf yak""".split()
)

SUMS = "Sums:"
PREAMBLE = " Written so far:"
OTHERS = "\n\nOthers are writing:"
OWN = "\n\nNow:"
BREAK = "\n\n"
CHECK = " Wait, am I doing redundant work? (yes/no):"
YES, NO = " yes", " no"
IS_WITH = " is with"
WAITING = " Waiting for"
ALL_DONE = " All done:"
SMALLEST, LARGEST = " smallest", " largest"
SAYS = "]:**"  # in front of every step
MAX_STEPS = 99  # of one worker
END = "<|end|>"


def header(name: str, number: int) -> str:
    """How a step begins."""
    return f"**{name} [{number}{SAYS}"
