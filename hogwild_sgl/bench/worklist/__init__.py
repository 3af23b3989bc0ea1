"""A tiny model for the worklist task: its training, and the experiment on a real server."""
