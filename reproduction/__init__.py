"""The paper's figure and claims, run again: one file per experiment, with a verdict on each
claim.
"""

from __future__ import annotations

from importlib import import_module

from reproduction.report import Experiment, Finding, Report

#: Experiments by the word on the command line; each is the object `EXPERIMENT` of the module of
#: that name.
NAMES = ("figure1", "streaming", "privacy", "whitening")


def load(name: str) -> Experiment:
    """Return an experiment. Its module, and matplotlib with it, is imported only when this is
    called.
    """
    experiment: Experiment = import_module(f"reproduction.{name}").EXPERIMENT
    return experiment


__all__ = ["NAMES", "Experiment", "Finding", "Report", "load"]
