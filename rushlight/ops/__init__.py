"""Every operator, declared exactly once. Importing this room declares them all; `TABLE` finds them by name."""
from . import (
           assembly,
           convolution,
           creation,
           indexing,
           losses,
           matrix,
           normalization,
           optimizers,
           pointwise,
           recurrent,
           reductions,
           views,
)
from .declare import Op
from .values import TABLE

__all__ = ["TABLE", "Op", "assembly", "convolution", "creation", "indexing", "losses", "matrix", "normalization",
           "optimizers", "pointwise", "recurrent", "reductions", "views"]
