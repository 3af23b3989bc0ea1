"""The driver of a team: who writes what next, and when it is over. No I/O."""
