"""Models: call them, observe their layers, change their weights and restore their state."""
