"""A run that a test kills: ``python -m tests.unit.bench.killable FOLDER LOG SECONDS``.

The whole command, from the plan to the report, with a scripted program and no server.
"""

import sys

from hogwild_sgl.bench.run import start
from hogwild_sgl.bench.run.grid import settings_of, units_of
from tests.unit.bench.fakes import SUMS, plan, scripted

PROBLEMS, SEEDS = 12, 5


def units():
    program = scripted()
    examples = SUMS.load(None, PROBLEMS)
    return units_of([program], settings_of([program], ["combined"], [2]), examples, SEEDS, [10, 40])


def main(folder, log, seconds):
    program = scripted(seconds=float(seconds), log=log)
    start.catalog = lambda: {"team": program}
    start.look_at = lambda urls: {"model": "scripted"}
    return start.start(plan(folder, limit=PROBLEMS, seeds=SEEDS, budgets=(10, 40)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
