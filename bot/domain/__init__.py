"""Words and decisions: values and pure functions, without I/O, clock or asyncio."""
