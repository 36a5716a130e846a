"""Ask a suspect and read one answer per graph from its replies."""
