"""Answers: found in generated text, spelt alike, and compared."""
