"""The private mechanisms, one file each. To add one: write its class beside the others, and add a line below."""

from odeco.private.mechanisms.core import Core
from odeco.private.mechanisms.input import Input
from odeco.private.mechanisms.joint import Joint
from odeco.private.mechanisms.mechanism import Calibration, Mechanism, Sensitivities, Setting, Task
from odeco.private.mechanisms.subspace import Subspace
from odeco.private.mechanisms.wang2016 import Wang2016

#: Every mechanism by its name. Where two need the same signal, "auto" takes the one that stands first.
MECHANISMS: dict[str, Mechanism] = {
    Wang2016.name: Wang2016(),
    Joint.name: Joint(),
    Input.name: Input(),
    Core.name: Core(),
    Subspace.name: Subspace(),
}

__all__ = ["MECHANISMS", "Calibration", "Mechanism", "Sensitivities", "Setting", "Task"]
