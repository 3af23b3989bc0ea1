"""The plan through Triton on a GPU."""
