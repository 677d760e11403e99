"""How fast privrl is, as ratios against plain renderings of the same thing, measured in one run.

BLAS has one thread on both sides: matrices are small here, and threads that wait for each other cost more than they do.
"""

import os

for _library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_library, "1")  # read when NumPy and SciPy are loaded, so before they are
