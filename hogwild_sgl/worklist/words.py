"""The words of the worklist task and its model."""

from __future__ import annotations

ITEM_NAMES = tuple(
    """ant ape bat bear bee bird boar bug calf cat clam cod cow crab crow deer dog dove duck
    eel elk fish fly fox frog goat hare hawk hen ibis kite lamb lark lion mole moth mouse mule
    newt owl ox pig pony rat seal slug snail swan toad wasp wolf worm wren yak""".split()
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
MAX_STEPS = 99  # of one worker
END = "<|end|>"


def header(name: str, number: int) -> str:
    """How a step begins."""
    return f"**{name} [{number}]:**"
