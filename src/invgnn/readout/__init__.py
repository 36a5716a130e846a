"""Query a suspect and compute one answer per graph from its replies."""
