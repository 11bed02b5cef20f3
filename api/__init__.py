"""The service: epochcast's answers over HTTP."""

import os

# Each thread of numpy's linear algebra would wait for threads of its own, which wait for a processor as others do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
