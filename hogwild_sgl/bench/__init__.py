"""Benchmarks: problems from files or the hub, any program, one runner, one report."""
