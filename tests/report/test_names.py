"""Files of one name, lines of theirs, and texts that could be markup."""

import json
import re

import rushlight as rl
from rushlight import cli, trace


def test_short_paths_are_distinct():
    first = trace.short_path("/test_names/a/layer.py")
    second = trace.short_path("/test_names/b/layer.py")
    assert first.endswith("layer.py") and second == "b/layer.py"
    assert trace.short_path("/test_names/c/b/layer.py") == "c/b/layer.py"
    assert trace.short_path("/test_names/a/layer.py") == first
    assert trace.short_place("/test_names/b/layer.py:7") == "b/layer.py:7"
    assert trace.short_path("/test_names/my  model >.py") == "my_model_.py"


def test_two_files_of_one_name_are_two_to_the_links(tmp_path):
    for folder, body in (("one", "rl.sin(x) * 2"), ("two", "rl.cos(x) + 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.py").write_text(
            f"import rushlight as rl\n\ndef run(x):\n    return {body}\n"
        )
    script = tmp_path / "main.py"
    script.write_text(
        "import importlib.util, pathlib\nimport rushlight as rl\nparts = []\n"
        "for folder in ('one', 'two'):\n"
        "    file = pathlib.Path(__file__).parent / folder / 'part.py'\n"
        "    spec = importlib.util.spec_from_file_location(folder, file)\n"
        "    made = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(made)\n"
        "    parts.append(made.run)\n"
        "rl.compile(lambda x: parts[0](x) @ parts[1](x))(rl.ones(3, 3))\n"
    )
    made = tmp_path / "page.html"
    rl.compiler.reset()
    assert cli.main(["explain", str(script), "-q", "-o", str(made)]) == 0
    found = re.search(r'id="data">(.*?)</script>', made.read_text(), re.S)
    data = json.loads(found[1])
    names = {f["name"]: f["path"] for f in data["files"] if f["name"].endswith("part.py")}
    assert sorted(names.values()) == [str(tmp_path / k / "part.py") for k in ("one", "two")]
    graphs = [g for c in data["observed"]["captures"] for g in c["graphs"]]
    origins = [chain for g in graphs for s in g["steps"] for chain in s["origins"]]
    for operator, folder in (("sin", "one"), ("cos", "two")):
        (chain,) = [o for o in origins if f" > {operator} " in o]
        assert names[chain.partition(":")[0]] == str(tmp_path / folder / "part.py")
