"""Learn the components of a symmetric tensor that is too large to store, too private to look at, or
still arriving.
"""

from odeco._util import __version__ as __version__
from odeco._util.lazy import make_lazy

make_lazy(__name__)
