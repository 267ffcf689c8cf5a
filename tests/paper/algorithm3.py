"""Algorithm 3 of the paper, line by line, one vector at a time. Slow on purpose: the library is
compared with it.
"""

from __future__ import annotations

import math

import numpy as np


def noise_level(k, L, R, epsilon, delta):
    """Line 2: ν."""
    K = k * L * (R + 1)
    epsilon_each = epsilon / math.sqrt(K * (4 + math.log(2 / delta)))
    delta_each = delta / (2 * K)
    return 6 * math.sqrt(2 * math.log(1.25 / delta_each)) / epsilon_each


def private_tensor_power_method(T, k, L, R, epsilon, delta, draw_start, draw_noise):
    """Return the pairs (λ̂, v̂).

    `draw_start(i, tau)` is line 4: a unit vector for component i, repetition tau.
    `draw_noise(scale, size)` returns `size` draws of N(0, scale²).
    """
    d = T.shape[0]
    D = np.zeros_like(T)  # line 2
    nu = noise_level(k, L, R, epsilon, delta)
    pairs = []
    for i in range(k):
        u = [draw_start(i, tau) for tau in range(L)]  # line 4, initialization
        for _ in range(R):
            u_next = []
            for tau in range(L):
                image = np.einsum("abc,b,c->a", T - D, u[tau], u[tau])  # line 6, power iteration
                released = image + draw_noise(
                    nu * np.abs(u[tau]).max() ** 2, d
                )  # line 7, noise calibration
                u_next.append(released / np.linalg.norm(released))  # line 8, normalization
            u = u_next
        values = [  # line 10
            np.einsum("abc,a,b,c->", T - D, u[tau], u[tau], u[tau])
            + draw_noise(nu * np.abs(u[tau]).max() ** 3, 1)[0]
            for tau in range(L)
        ]
        best = int(np.argmax(values))
        D = D + values[best] * np.einsum(
            "a,b,c->abc", u[best], u[best], u[best]
        )  # line 11, deflation
        pairs.append((values[best], u[best]))
    return pairs
