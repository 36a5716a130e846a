"""What invgnn costs: each figure a ratio of two things run in turn, in one process, on the same data."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch look: two cores, and ratios of processor time
