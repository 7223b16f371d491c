"""The GPU path without a GPU: each program here runs in a process of its own on a stand-in for the
driver (fake_driver.c), with the CPU's kernels in the place of the GPU's.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(p.stem for p in HERE.glob("check_*.py"))
COMPILER = shutil.which("gcc") or shutil.which("cc")


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """The four shared objects, by name."""
    if COMPILER is None:
        pytest.skip("no C compiler to build the stand-ins with")
    folder = tmp_path_factory.mktemp("stand_ins")
    built = {}
    for name in ("driver", "cublaslt", "cudnn", "cupti"):
        built[name] = str(folder / f"libfake_{name}.so")
        source = str(HERE / f"fake_{name}.c")
        options = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o", built[name]]
        subprocess.run([COMPILER, *options, source, "-ldl"], check=True)
    return built


def run(program, stand_ins, **settings):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUSHLIGHT_CUDA")}
    paths = [str(HERE), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {
        "PYTHONPATH": os.pathsep.join(paths),  # for stand_in: programs run with a safe path
        "RUSHLIGHT_CUDA_DRIVER": stand_ins["driver"],
        "RUSHLIGHT_CUBLASLT": stand_ins["cublaslt"],
        "RUSHLIGHT_CUDNN": stand_ins["cudnn"],
        "RUSHLIGHT_CUPTI": stand_ins["cupti"],
        "RUSHLIGHT_CUDA_LAUNCH_THREAD": "2",  # every launch, also a lone one
        **settings,
    }
    return subprocess.run(
        [sys.executable, str(HERE / f"{program}.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program, stand_ins):
    text = (HERE / f"{program}.py").read_text(encoding="utf-8")
    asked = [line.split(":", 1)[1] for line in text.splitlines() if line.startswith("# settings:")]
    settings = dict(pair.split("=") for line in asked for pair in line.split())
    done = run(program, stand_ins, **settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.strip().endswith("checks passed"), done.stdout[-2000:]


def one_sentence(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = """
import rushlight
from rushlight import cuda
assert not cuda.is_available() and cuda.device_count() == 0
cuda.manual_seed_all(3)
cuda.empty_cache()
assert cuda.memory_allocated() == 0 and cuda.take_waits() == []
rushlight.ones(2) + 1
for ask in (cuda.current_device, cuda.synchronize, cuda.Stream, lambda: rushlight.ones(2).cuda()):
    try:
        ask()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    else:
        raise SystemExit("no error")
"""


def test_without_a_driver_one_sentence_says_so():
    told = set(one_sentence(ASK, RUSHLIGHT_CUDA_DRIVER="/nowhere/libcuda.so.1").splitlines())
    (sentence,) = told
    assert "'cuda' is not available" in sentence and "/nowhere/libcuda.so.1" in sentence


def test_cudnn_is_looked_for_before_the_device_is_used(stand_ins):
    ask = """
import rushlight
print(rushlight.backends.cudnn.is_available(), rushlight.cuda.is_initialized())
"""
    driver = {"RUSHLIGHT_CUDA_DRIVER": stand_ins["driver"]}
    assert one_sentence(ask, RUSHLIGHT_CUDNN=stand_ins["cudnn"], **driver) == "True False"
    assert one_sentence(ask, RUSHLIGHT_CUDNN="/nowhere", **driver) == "False False"


def test_a_library_that_was_named_is_the_only_one_looked_for(stand_ins, tmp_path):
    ask = """
from rushlight.runtime.cuda import libraries
print(libraries.missing("cudnn"))
"""
    (tmp_path / "libcudnn.so.9").symlink_to(stand_ins["cudnn"])
    by_loader = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert one_sentence(ask, RUSHLIGHT_CUDNN="", **by_loader) == ""
    told = one_sentence(ask, RUSHLIGHT_CUDNN="/nowhere", **by_loader)
    assert told == "cuDNN cannot be opened (/nowhere): install nvidia-cudnn-cu13"


def test_without_cupti_times_are_between_events_and_the_table_says_so(stand_ins):
    ask = """
import sys
import rushlight as rl
from rushlight.profiler import profile
with profile():
    rl.ones(3) + 1
assert "rushlight.runtime.cuda.libraries" not in sys.modules  # nothing is looked for on a CPU
rl.cuda.init()
with profile() as prof:
    rl.ones(4).cuda() @ rl.ones(4).cuda()
assert prof.events().device_times.by == "events", prof.events().device_times
print(prof.key_averages().table().splitlines()[-1])
"""
    driver = {"RUSHLIGHT_CUDA_DRIVER": stand_ins["driver"]}
    told = one_sentence(ask, RUSHLIGHT_CUPTI="/nowhere/libcupti.so", **driver)
    assert told.startswith("CUDA times: between events on the stream")
    assert "CUPTI cannot be opened (/nowhere/libcupti.so): install nvidia-cuda-cupti" in told
    told = one_sentence(ask, RUSHLIGHT_CUPTI=stand_ins["cudnn"], **driver)
    assert "CUPTI is too old: it lacks cupti" in told


def test_cupti_is_looked_for_by_the_driver_s_version(stand_ins, tmp_path):
    ask = """
from rushlight.runtime.cuda import libraries
print(" ".join(libraries.places("cupti")))
"""
    toolkit = tmp_path / "extras" / "CUPTI" / "lib64"
    toolkit.mkdir(parents=True)
    (toolkit / "libcupti.so.12").touch()
    (toolkit / "libcupti.so.13").touch()
    settings = {"RUSHLIGHT_CUDA_DRIVER": stand_ins["driver"], "CUDA_HOME": str(tmp_path)}
    settings["RUSHLIGHT_CUPTI"] = ""
    for version, first in (("13000", "13"), ("12080", "12")):
        found = one_sentence(ask, RUSHLIGHT_FAKE_VERSION=version, **settings).split()
        assert found[-2] == f"libcupti.so.{first}"  # by the loader, last
        here = [f for f in found if f.startswith(str(tmp_path))]
        assert here[0] == f"{toolkit}/libcupti.so.{first}" and len(here) == 2


def test_an_old_driver_is_told_of(stand_ins):
    told = one_sentence(
        ASK, RUSHLIGHT_CUDA_DRIVER=stand_ins["driver"], RUSHLIGHT_FAKE_VERSION="11040"
    )
    assert "supports CUDA 11.4 only" in told and "update" in told


def test_a_driver_without_a_gpu_is_told_of(stand_ins):
    told = one_sentence(ASK, RUSHLIGHT_CUDA_DRIVER=stand_ins["driver"], RUSHLIGHT_FAKE_DEVICES="0")
    assert "sees no GPU" in told


def test_a_library_that_is_no_driver_is_told_of(stand_ins):
    told = one_sentence(ASK, RUSHLIGHT_CUDA_DRIVER=stand_ins["cudnn"])
    assert "lacks cuInit" in told
