"""What the machine says by itself: values in, messages out."""
