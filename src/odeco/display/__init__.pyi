from odeco.display.figures import ConvergenceDisplay as ConvergenceDisplay
from odeco.display.figures import CosinesDisplay as CosinesDisplay
from odeco.display.figures import LeadingDisplay as LeadingDisplay
from odeco.display.figures import VectorDisplay as VectorDisplay
from odeco.display.figures import WeightsDisplay as WeightsDisplay
