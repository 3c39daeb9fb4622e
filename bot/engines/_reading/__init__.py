"""What the log readers of all engines share: cutting, cleaning, judging, redacting."""
