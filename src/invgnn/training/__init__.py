"""Tasks, batching, and the training loops of the library."""
