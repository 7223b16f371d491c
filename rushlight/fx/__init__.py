"""The graph IR: trace, print, parse, verify, rewrite, run."""

from .graph import CALL, OUTPUT, PLACEHOLDER, Graph, Node, Origin, Var
from .interpreter import run
from .parsing import parse
from .passes import bisect, run_passes
from .tracing import Proxy, retrace, trace
