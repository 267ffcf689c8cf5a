"""Algorithm 1 of the paper, line by line, one vector at a time. Slow on purpose: the library is
compared with it.
"""

from __future__ import annotations

import numpy as np


def robust_tensor_power_method(T, k, L, R, draw_start):
    """Return the pairs (λ̂, v̂). `draw_start(i, tau)` is line 3: a unit vector for component i,
    repetition tau.
    """
    T = T.copy()
    pairs = []
    for i in range(k):
        ends = []
        for tau in range(L):
            u = draw_start(i, tau)  # line 3, initialization
            for _ in range(R):  # line 4, power iteration
                u = np.einsum("abc,b,c->a", T, u, u)
                u = u / np.linalg.norm(u)
            ends.append(u)
        values = [np.einsum("abc,a,b,c->", T, u, u, u) for u in ends]  # line 5, boosting
        best = int(np.argmax(values))
        v, weight = ends[best], values[best]
        T -= weight * np.einsum("a,b,c->abc", v, v, v)  # line 6, deflation
        pairs.append((weight, v))
    return pairs
