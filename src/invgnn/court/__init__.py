"""Claims that precede a theft, openings for a judge, signed judgements, tracing of leaks."""
