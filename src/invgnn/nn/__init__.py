"""Models: call them, watch their layers, change their weights, restore their state."""
