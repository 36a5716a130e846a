"""What one trial of a grid measures: one file for each kind of measurement."""
