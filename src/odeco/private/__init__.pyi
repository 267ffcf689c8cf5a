from odeco.private.recipe import decompose_privately as decompose_privately
from odeco.private.recipe import plan_privacy as plan_privacy
