"""Teams in SGLang's frontend language: the states, the backend, the transcript."""
