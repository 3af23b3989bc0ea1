"""Runs generated programs with limits on time, memory, files, and without a network."""

from hogwild_sgl.bench.sandbox.run import Limits, Outcome, SandboxUnavailable, barriers, run

__all__ = ["Limits", "Outcome", "SandboxUnavailable", "barriers", "run"]
