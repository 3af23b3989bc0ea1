"""A list of sums for a team: the task on which a tiny model shows collaboration on a CPU."""
