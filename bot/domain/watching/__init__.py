"""Watching throughput: what is usual, what is wrong, and the life of an alert. Pure: readings in, changes out."""
