"""What is remembered: SQL through SQLAlchemy."""
