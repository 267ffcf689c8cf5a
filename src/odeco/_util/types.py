"""Names for the array types that the signatures of odeco speak of."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

IndexArray: TypeAlias = NDArray[np.int64]

BoolArray: TypeAlias = NDArray[np.bool_]

#: Data as a user holds it: the oracles accept single precision, the loop works in double.
DataArray: TypeAlias = NDArray[np.floating[Any]]

#: What every ``rng`` argument accepts (SPEC 7): nothing, a seed, or a generator.
RngLike: TypeAlias = int | np.random.Generator | None
