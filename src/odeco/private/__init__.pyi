from odeco.private.recipe import decompose_privately as decompose_privately
from odeco.private.recipe import plan_privacy as plan_privacy
from odeco.private.subspace import PrivateBound as PrivateBound
from odeco.private.subspace import PrivateSubspace as PrivateSubspace
from odeco.private.subspace import SubspacePlan as SubspacePlan
from odeco.private.subspace import choose_norm_bound as choose_norm_bound
from odeco.private.subspace import plan_subspace as plan_subspace
from odeco.private.subspace import private_subspace as private_subspace
