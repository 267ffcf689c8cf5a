"""Learn the components of a symmetric tensor that is too large to store, too private to look at, or still arriving."""

from odeco._checks import ConvergenceWarning
from odeco.checking import check_oracle
from odeco.components import Components
from odeco.oracle import Oracle, SensitiveOracle

__version__ = "0.1.0"

__all__ = ["Components", "ConvergenceWarning", "Oracle", "SensitiveOracle", "check_oracle"]
