"""The page of every model, in a real browser: light and dark, wide and on a phone."""

from __future__ import annotations

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from test_report import VISIBLE

from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorMixture
from odeco.models.engine.page import write_model_report


def models():
    """Return one small model of each kind."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=600)
    answers = (truth[:, None] > np.arange(9) % 3) ^ (rng.random((600, 9)) < 0.1)
    symbols = np.arange(3000) // 20 % 2 * 3 + rng.integers(3, size=3000)
    yield TensorMixture(3, random_state=0).fit(9 * np.eye(3)[truth] + rng.standard_normal((600, 3)))
    yield TensorHMM(2, emissions="categorical", random_state=0).fit(symbols)
    yield TensorICA(3, random_state=0).fit(rng.laplace(size=(2000, 3)) @ rng.standard_normal((3, 3)))
    yield LatentClasses(3, random_state=0).fit(answers.astype(int))
    same = truth[:120, None] == truth[None, :120]
    upper = np.triu(rng.random((120, 120)) < np.where(same, 0.4, 0.02), 1)
    yield Communities(3, random_state=0).fit((upper | upper.T).astype(float))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
def test_the_page_of_every_model_is_shown_without_a_complaint(tmp_path):
    with Browser() as browser:
        for model in models():
            name = type(model).__name__
            path = tmp_path / f"{name}.html"
            write_model_report(model, path, title="<script>alert(2)</script>")
            for scheme, width in (("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)):
                browser.open(path, scheme=scheme, width=width)
                assert browser.complaints() == [], name
                asked = [each for each in browser.requests() if not each.startswith("data:")]  # pictures in the page
                assert asked == [path.as_uri()], name
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, name
                assert browser.evaluate(VISIBLE) == [], (name, scheme, width)
                assert browser.evaluate("document.title") == "<script>alert(2)</script>"
                browser.screenshot(tmp_path / f"{name}-{scheme}-{width}.png")
