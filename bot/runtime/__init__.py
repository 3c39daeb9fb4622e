"""The imperative shell: it gathers facts, lets the handlers decide, and acts step by step."""
