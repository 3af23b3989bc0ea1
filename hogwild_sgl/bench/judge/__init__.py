"""Scores of runs by a language model."""
