"""The tensor power method as a solver: it advances by one oracle reply at a time and never sees
data.
"""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
