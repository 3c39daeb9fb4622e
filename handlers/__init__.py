"""What people may say: one module a command, each exporting COMMAND."""
