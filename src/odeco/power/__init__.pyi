from odeco.power.operator_norm import operator_norm as operator_norm
from odeco.power.power_method import Eigenpair as Eigenpair
from odeco.power.power_method import PowerSolver as PowerSolver
from odeco.power.power_method import Schedule as Schedule
from odeco.power.power_method import run as run
from odeco.power.power_method import step as step
