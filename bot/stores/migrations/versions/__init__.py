"""One module a revision, the oldest first by its number."""
