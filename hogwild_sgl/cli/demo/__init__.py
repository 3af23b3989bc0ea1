"""``hogwild demo``: a team at work, from nothing."""
