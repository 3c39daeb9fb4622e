"""How commands reach a host: local, ssh, and through it pct, docker, sudo. One module each, exporting TRANSPORT."""
