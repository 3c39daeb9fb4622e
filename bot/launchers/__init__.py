"""What starts and stops a server process: one module each, exporting LAUNCHER."""
