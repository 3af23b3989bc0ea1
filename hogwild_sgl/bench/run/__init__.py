"""From a plan to graded results on disk."""
