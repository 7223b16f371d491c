"""The examples as programs of any peer: their source with the names in its imports exchanged.

The examples differ from a PyTorch user's program in their imports alone; that is what makes this
possible, and what it proves.
"""

import types
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name: str, peer: str) -> types.ModuleType:
    """The example `name` (a file of examples/, without .py) as a module computing with `peer`."""
    path = EXAMPLES / f"{name}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = [
        x.replace("rushlight", peer, 1).replace(f"import {peer} as {peer}", f"import {peer}")
        if x.startswith(("import rushlight", "from rushlight"))
        else x
        for x in lines
    ]
    module = types.ModuleType(f"{name}_{peer}")
    module.__file__ = str(path)
    exec(compile("\n".join(changed), str(path), "exec"), module.__dict__)
    return module
