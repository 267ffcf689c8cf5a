"""Names of array types for annotations."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

IndexArray: TypeAlias = NDArray[np.int64]

BoolArray: TypeAlias = NDArray[np.bool_]

#: Data of a user: oracles accept single precision, solvers work in double precision.
DataArray: TypeAlias = NDArray[np.floating[Any]]

#: What every ``rng`` argument accepts (SPEC 7): nothing, a seed, or a generator of any kind.
RngLike: TypeAlias = (
    int
    | np.random.Generator
    | np.random.RandomState
    | np.random.SeedSequence
    | np.random.BitGenerator
    | None
)
