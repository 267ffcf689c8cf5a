"""Names of array types for annotations, and arrays of other libraries (PyTorch, CuPy, JAX, the array API standard)."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

IndexArray: TypeAlias = NDArray[np.int64]

BoolArray: TypeAlias = NDArray[np.bool_]

#: Data of a user: oracles accept single precision, solvers work in double precision.
DataArray: TypeAlias = NDArray[np.floating[Any]]

#: What every ``rng`` argument accepts (SPEC 7): nothing, a seed, or a generator.
RngLike: TypeAlias = int | np.random.Generator | None

#: Packages whose arrays follow the standard through array-api-compat, if not by themselves.
_LIBRARIES = {"torch", "cupy", "jax", "jaxlib"}


def is_foreign(array: Any) -> bool:
    """Return whether an array belongs to another library than NumPy, without importing that library."""
    if isinstance(array, np.ndarray | np.generic):
        return False
    names = {each.__module__.partition(".")[0] for each in type(array).__mro__}
    return bool(names & _LIBRARIES) or hasattr(type(array), "__array_namespace__")


def as_numpy(array: Any) -> NDArray[Any]:
    """Return anything that NumPy can read as an array; arrays of other libraries are copied from their device."""
    if is_foreign(array):
        if hasattr(array, "detach"):  # PyTorch: neither gradients nor the memory of a GPU can be shared
            array = array.detach().cpu()
        elif hasattr(array, "get"):  # CuPy copies only if it is asked to
            array = array.get()
    return np.asarray(array)
