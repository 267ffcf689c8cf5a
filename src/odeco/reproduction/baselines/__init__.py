"""Published algorithms to compare with."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
