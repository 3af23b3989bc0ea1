"""Servers as child processes, and the models that the demo serves."""
