"""The paper's loop under the name that it is documented by; see `odeco.search`."""

from odeco.search import Callback, Eigenpair, Plan, Search, run, step

__all__ = ["Callback", "Eigenpair", "Plan", "Search", "run", "step"]
