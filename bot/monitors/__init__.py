"""Other people's monitoring: Prometheus is read, Alertmanager is spoken with and listened to."""
