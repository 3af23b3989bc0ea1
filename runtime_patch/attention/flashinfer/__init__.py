"""The plan through FlashInfer on a GPU."""
