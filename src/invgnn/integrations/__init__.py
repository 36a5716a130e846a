"""Adapters for training loops of other libraries and of your own."""
