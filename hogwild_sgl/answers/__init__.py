"""Answers: found in generated text, spelt alike, and compared."""

from hogwild_sgl.answers.extract import (
    equal,
    extract_answer,
    extract_answers,
    extract_code,
    majority,
)

__all__ = ["equal", "extract_answer", "extract_answers", "extract_code", "majority"]
