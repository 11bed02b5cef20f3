"""Arrays of floating-point numbers, the type that all wings compute with."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
