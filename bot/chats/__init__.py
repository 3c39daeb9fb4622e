"""Where people talk: Slack and the console; a chat renders message values and decides nothing."""
