"""Grids of trials: what is to run, what has run, what it costs, and the run itself."""
