"""Teams in the scheduler process: the truth about who writes, what is published, and where."""
