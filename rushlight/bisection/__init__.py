"""Which stage makes a wrong answer: `rushlight bisect SCRIPT`, and what it writes.

script.py         the script in processes of its own: eager, graph by graph, compiled whole
stages.py         one call of one captured graph, with stages switched off one after another
shrinking.py      the smallest part of a graph that still shows the difference
reproduction.py   a Python file that shows it again
values.py         copies of inputs, results to compare, graphs run as they stand
"""

from .stages import Finding, examine
from .values import Interpreted, differences, interpreted, outcome, seeded, strided

__all__ = [
    "Finding",
    "Interpreted",
    "differences",
    "examine",
    "interpreted",
    "outcome",
    "seeded",
    "strided",
]
