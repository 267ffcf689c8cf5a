"""The tensor power method with a sketch in place of the tensor (Wang, Tung, Smola and Anandkumar 2015)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odeco._arguments import as_generator, check_n_components
from odeco._types import RngLike
from odeco.baselines._sketch import TensorSketch
from odeco.components import Components
from odeco.search import Plan, run


def sketched_power_method(
    tensor: Any,
    n_components: int,
    *,
    length: int | None = None,
    n_sketches: int = 9,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    rng: RngLike = None,
) -> Components:
    """Return the components that the tensor power method finds when a sketch answers in place of the tensor.

    Parameters
    ----------
    tensor : array, DenseTensor, PackedTensor or TensorSketch
        A symmetric tensor with orthogonal components.
    n_components : int
        The number k of components.
    length, n_sketches : int
        As in `TensorSketch.of_entries`; not used, and not needed, if the tensor is a sketch.
    n_restarts, n_iterations : int, optional
        As in `odeco.decompose`; the number of iterations is fixed.
    rng : None, int or numpy.random.Generator
        Draws the sketches, then the starts.

    Notes
    -----
    A component that is found is subtracted from the sketch, as in the paper. Subtracting it from the answers would
    leave the noise that its own entries make in the buckets.

    References
    ----------
    Wang, Tung, Smola and Anandkumar 2015, arXiv:1506.04448.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.baselines import sketched_power_method
    >>> tensor = odeco.Components([2.0, 1.0], np.eye(30)[:, :2]).to_dense()
    >>> sketched_power_method(tensor, 2, length=1000, rng=0).weights.round(1)
    array([2., 1.])
    """
    generator = as_generator(rng)
    if isinstance(tensor, TensorSketch):
        sketch = tensor
    elif length is None:
        raise ValueError("`length` must be given for a tensor that is no sketch yet. Pass the length of a sketch.")
    else:
        sketch = TensorSketch.of_entries(tensor, length=length, n_sketches=n_sketches, rng=generator)
    k = check_n_components(n_components, sketch.dimension)
    plan = Plan.default(sketch.dimension, k, n_restarts=n_restarts, n_iterations=n_iterations)
    found: list[Components] = []
    for _ in range(k):
        component = run(sketch, replace(plan, n_components=1), rng=generator).components
        found.append(component)
        sketch = sketch.without(component)
    weights = np.concatenate([each.weights for each in found])
    vectors = np.concatenate([each.vectors for each in found], axis=1)
    return Components(weights, vectors, sketch.order).sorted_by_weight()
