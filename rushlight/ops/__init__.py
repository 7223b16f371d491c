"""Every operator, declared exactly once. Importing this room declares them all; `TABLE` finds them by name."""
from . import (
           activations,
           assembly,
           batch_norm,
           clamping,
           convolution,
           creation,
           elementary,
           indexing,
           logic,
           losses,
           matrix,
           normalization,
           optimizers,
           ordering,
           pointwise,
           pooling,
           recurrent,
           reductions,
           rounding,
           scans,
           scattering,
           views,
)
from .declare import Op
from .values import TABLE

__all__ = ["TABLE", "Op", "activations", "assembly", "batch_norm", "clamping", "convolution", "creation",
           "elementary", "indexing", "logic", "losses", "matrix", "normalization", "optimizers", "ordering",
           "pointwise", "pooling", "recurrent", "reductions", "rounding", "scans", "scattering", "views"]
