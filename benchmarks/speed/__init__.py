"""Measure what invgnn costs, as ratios of two functions that run in alternation on the same data."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch are imported: ratios of processor time need one thread
