"""diffprivlib's KMeans on rows in a file, for `private_kmeans.py`: it does not import beside
current scikit-learn.

    python private_kmeans_peer.py FOLDER K EPSILON SIDE SEED

reads FOLDER/rows.npy and writes FOLDER/centres.npy. Every feature is bounded by ±SIDE, which is
public.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from diffprivlib.models import KMeans  # type: ignore[import-not-found]


def main() -> None:
    folder, k, epsilon, side, seed = (
        sys.argv[1],
        int(sys.argv[2]),
        *map(float, sys.argv[3:5]),
        int(sys.argv[5]),
    )
    rows = np.clip(np.load(f"{folder}/rows.npy"), -side, side)
    bounds = (np.full(rows.shape[1], -side), np.full(rows.shape[1], side))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KMeans(n_clusters=k, epsilon=epsilon, bounds=bounds, random_state=seed).fit(rows)
    np.save(f"{folder}/centres.npy", model.cluster_centers_)


if __name__ == "__main__":
    main()
