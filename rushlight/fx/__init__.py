"""The graph IR: trace, print, parse, verify, rewrite, run."""
from .graph import CALL, OUTPUT, PLACEHOLDER, Graph, Node, Origin, Var
from .parse import parse
from .passes import bisect, run_passes
from .run import run
from .tracing import Proxy, retrace, trace
