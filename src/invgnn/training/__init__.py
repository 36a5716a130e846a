"""Tasks and the training loops of the library."""
