"""Every operator, declared exactly once. Importing this room declares them all; `TABLE` finds them by name."""
from . import (
           activations,
           assembly,
           attention,
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
           products,
           recurrent,
           reductions,
           rounding,
           scans,
           scattering,
           views,
)
from .declare import Op
from .values import TABLE

__all__ = ["TABLE", "Op", "activations", "assembly", "attention", "batch_norm", "clamping", "convolution",
           "creation", "elementary", "indexing", "logic", "losses", "matrix", "normalization", "optimizers",
           "ordering", "pointwise", "pooling", "products", "recurrent", "reductions", "rounding", "scans",
           "scattering", "views"]
