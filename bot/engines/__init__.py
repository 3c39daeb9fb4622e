"""Pure readers of inference engines: launch argv, log lines, metrics and health become domain values."""
