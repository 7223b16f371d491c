"""The script's process of `rushlight bisect`: see script.py."""

import sys

from rushlight.bisection.script import child

sys.exit(child(sys.argv[1:]))
