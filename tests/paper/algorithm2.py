"""Algorithm 2 of the paper, line by line, one row and one vector at a time.

Corrections to the text: line 6 adds (x_l' u)^2 x_l, where the paper has x_i; line 7 takes xi with
the unit vector u_t, where the paper has u-tilde_t. The weight is accumulated at u_{R-1} and paired
with u_R, as printed.
"""

from __future__ import annotations

import numpy as np


def online_robust_tensor_power_method(rows, k, L, R, n, draw_start):
    """Return the pairs (λ̂, v̂) and the number of rows read. `draw_start(i, tau)` is a unit vector
    (line 3).
    """
    stream = iter(rows)
    pairs, n_read = [], 0
    for i in range(k):
        u = [draw_start(i, tau) for tau in range(L)]  # line 3
        for _ in range(R):  # line 4
            u_tilde = [np.zeros_like(u[0]) for _ in range(L)]  # line 5, initialization
            lambda_tilde = [0.0] * L
            for _ in range(n):  # line 6, data association
                x = next(stream)
                n_read += 1
                for tau in range(L):
                    u_tilde[tau] = u_tilde[tau] + (x @ u[tau]) ** 2 * x / n
                    lambda_tilde[tau] += (x @ u[tau]) ** 3 / n
            for tau in range(L):  # line 7, deflation
                for weight, v in pairs:
                    xi = v @ u[tau]
                    u_tilde[tau] = u_tilde[tau] - weight * xi**2 * v
                    lambda_tilde[tau] -= weight * xi**3
            u = [each / np.linalg.norm(each) for each in u_tilde]  # line 8, normalization
        best = int(np.argmax(lambda_tilde))  # line 10
        pairs.append((lambda_tilde[best], u[best]))
    return pairs, n_read
