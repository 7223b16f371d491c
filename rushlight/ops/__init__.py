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
           gamma,
           indexing,
           logic,
           losses,
           matrix,
           normalization,
           norms,
           optimizers,
           ordering,
           pointwise,
           pooling,
           products,
           rearranging,
           recurrent,
           reductions,
           rounding,
           scans,
           scattering,
           statistics,
           triangles,
           views,
)
from .declare import Op
from .values import TABLE

__all__ = ["TABLE", "Op", "activations", "assembly", "attention", "batch_norm", "clamping", "convolution", "creation",
           "elementary", "gamma", "indexing", "logic", "losses", "matrix", "normalization", "norms", "optimizers",
           "ordering", "pointwise", "pooling", "products", "rearranging", "recurrent", "reductions", "rounding", "scans",
           "scattering", "statistics", "triangles", "views"]
