"""The private mechanisms. To add one, write its class and add a line to `MECHANISMS`."""

from odeco.private.mechanisms.entries import Core, Input, Subspace
from odeco.private.mechanisms.iterations import Joint, Wang2016
from odeco.private.mechanisms.mechanism import Calibration, Mechanism, Setting, Task

#: Every mechanism by its name. Where two need the same signal, "auto" takes the first of them.
MECHANISMS: dict[str, Mechanism] = {each.name: each for each in (Wang2016(), Joint(), Input(), Core(), Subspace())}

__all__ = ["MECHANISMS", "Calibration", "Mechanism", "Setting", "Task"]
