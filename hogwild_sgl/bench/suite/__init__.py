"""What a benchmark is, and its command line."""
