"""Attention's templates without a GPU: compiled for two architectures and looked at, and run in
Triton's interpreter against the definition."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rushlight.loops import triton_attention as attention
from rushlight.runtime import triton as compiler

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    from rushlight import config

    monkeypatch.setattr(config.flags, "cache_dir", str(tmp_path / "cache"))


@pytest.mark.parametrize("key", attention.keys())
def test_keys_and_records(key):
    """A key says all of the kernel; sources are Python, and every number exists."""
    assert attention.shape_of(key).key == key
    record, sources = attention.record(key, 90)
    buffers = record["inputs"] + record["outputs"]
    assert record["variants"][-1]["when"] == []  # something always runs
    for source in sources:
        ast.parse(source.text)
        for _, _, word, _ in source.params:
            if word[0] == "n":
                assert int(word[1:].partition(":")[0]) < buffers * attention.NUMBERS
            if word[0] == "p":
                assert int(word[1:]) < buffers
    other = attention.key_of(attention.FORWARD, "float16", 40, 100, "bias")
    assert attention.shape_of(other) == (attention.FORWARD, "float16", 64, 128, "bias")
    assert attention.shape_of("add.float32.TT") is None


@needs_triton
@pytest.mark.parametrize("capability, product", [(80, "mma.sync"), (90, "wgmma.mma_async")])
def test_templates_assemble_for_tensor_cores(capability, product):
    """Products by the tensor cores, operands fetched while they work, and (but for single values)
    nothing spilled in what models call most."""
    for name in (attention.FORWARD, attention.BACKWARD):
        key = f"{name}.bfloat16.64.causal"
        record, sources = attention.record(key, capability)
        sources = [sources[one["cubin"]] for one in record["variants"][0]["launches"]]
        for source, image in zip(sources, compiler.compile_all(sources, capability)):
            assert image.cubin[:4] == b"\x7fELF" and image.entry == source.name
            if source.name.endswith("_deltas"):
                continue
            text = image.stages["ptx"]
            assert product in text and "cp.async.cg.shared.global" in text, source.name
            assert compiler.resources(image.cubin)["stack"] <= 128, source.name


@needs_triton
def test_interpreted_attention_is_the_definition():
    script = Path(__file__).with_name("attention_interpreted.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 9, done.stderr[-2000:]
    for r in results:
        assert "error" not in r, r
        for name in (attention.FORWARD, attention.BACKWARD):
            assert r[name] == ([1] if r["case"].startswith("odd heads") else [0, 1]), r
