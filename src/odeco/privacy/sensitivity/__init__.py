"""How far one neighbour can move an answer: the sensitivities that data holders declare.

A *neighbour relation* says which change of the data a guarantee hides. The *sensitivity* of an answer is the largest
Euclidean distance between the answers of two neighbours, all numbers that are released together taken as one vector.
It must hold for every pair of neighbours, so it depends on the query, which is public, and never on the data.

Two relations concern one entry of a symmetric tensor, two concern one record of a data set:

* **literal**: T' = T ± symmetrize(e_i ⊗ e_j ⊗ …), the sum over all p! orders of the indices: the paper's Definition
  4.2. Where indices coincide the terms coincide too, so a diagonal entry moves by p!.
* **distinct entry**: the number stored for one set of indices {i, j, …} changes by at most 1, together with its mirror
  images.
* **record, added or removed**: in (1/n) Σ x ⊗ x ⊗ …, with every record's norm at most B, one record is blanked, so
  that it adds nothing, or a blank record is filled. The divisor n is public and stays the same.
* **record, replaced**: one record takes any other value of norm at most B.

If entries may change by more than 1, multiply. A block U holds one query in every column, and its answers are
released together. Every docstring states the bound, its derivation, and whether it is attained. Rounding errors, a few
units in the last place, are within the room that `odeco.privacy.gdp_mu` leaves.
"""

from odeco.privacy.sensitivity.entries import (
    distinct_entry_core,
    distinct_entry_image,
    distinct_entry_value,
    literal_core,
    literal_image,
    literal_value,
)
from odeco.privacy.sensitivity.records import record_core, record_entries, record_image, record_value

__all__ = [
    "distinct_entry_core",
    "distinct_entry_image",
    "distinct_entry_value",
    "literal_core",
    "literal_image",
    "literal_value",
    "record_core",
    "record_entries",
    "record_image",
    "record_value",
]
