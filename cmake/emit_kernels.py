"""Runs the kernel emitter before the native core exists.

`rushlight/__init__.py` loads the core; the operator and loop rooms are plain Python. So the package
is entered here without its `__init__`: a bare module with the package's path.
"""

import runpy
import sys
import types
from pathlib import Path

package = types.ModuleType("rushlight")
package.__path__ = [str(Path(__file__).resolve().parent.parent / "rushlight")]
sys.modules["rushlight"] = package
runpy.run_module("rushlight.loops.library", run_name="__main__")
