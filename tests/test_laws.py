"""The laws of an oracle, over the registry of all oracles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry import ORACLES

from odeco import Oracle, check_oracle


@pytest.mark.parametrize("name", ORACLES)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 9), order=st.integers(3, 6))
def test_every_oracle_obeys_the_laws(name, seed, dimension, order):
    if order == 6:
        dimension = min(dimension, 4)
    check_oracle(ORACLES[name](np.random.default_rng(seed), dimension, order), rng=seed)


@pytest.mark.parametrize("name", ORACLES)
def test_an_image_of_no_columns_has_no_columns(name):
    oracle = ORACLES[name](np.random.default_rng(0), 4, 3)
    assert oracle.image(np.empty((oracle.dimension, 0))).shape == (oracle.dimension, 0)


class _Broken(Oracle):
    """Obeys all laws but the one that is to be broken."""

    order = 3
    dimension = 4

    def __init__(self, law):
        self.law = law

    def squared_norm(self):
        return 1e-6 if self.law == "Norm" else None

    def _image(self, block):
        match self.law:
            case "Shape":
                return block[:2] ** 2
            case "finite":
                return block * np.nan
            case "unchanged":
                block *= 2
                return block**2
            case "Homogeneity":
                return block
            case "Block":
                return block**2 * block.shape[1]
            case "Symmetry":
                return np.roll(block, 1, axis=0) * block
        return block**2

    def _value(self, block):
        return super()._value(block) * (2 if self.law == "Value" else 1)


@pytest.mark.parametrize(
    "law", ["Shape", "finite", "unchanged", "Homogeneity", "Value", "Block", "Symmetry", "Norm"]
)
def test_check_oracle_names_the_law_that_is_broken(law):
    with pytest.raises(AssertionError, match=law):
        check_oracle(_Broken(law))


def test_check_oracle_accepts_what_breaks_no_law():
    assert check_oracle(_Broken("none")) is None


def test_check_oracle_refuses_an_oracle_that_is_not_exact():
    oracle = _Broken("none")
    oracle.exact = False
    with pytest.raises(
        ValueError, match=r"_Broken is not exact\. Check the oracle that it wraps\."
    ):
        check_oracle(oracle)
