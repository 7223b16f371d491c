"""Data parallelism on one device: what it computes and what its state_dict is called."""

import pytest

import rushlight
from rushlight import nn


def test_data_parallel_computes_what_its_module_does(oracle):
    ours, theirs = nn.DataParallel(nn.Linear(3, 2)), oracle.nn.DataParallel(oracle.nn.Linear(3, 2))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["module.weight", "module.bias"]
    here = [0] if rushlight.cuda.is_available() else []
    assert ours.device_ids == here and ours.output_device == (here or [None])[0]
    x = rushlight.randn(5, 3)
    assert ours(x).equal(ours.module(x))
    assert nn.parallel.data_parallel(ours.module, x).equal(ours.module(x))


def test_more_devices_or_processes_are_refused():
    with pytest.raises(NotImplementedError, match=r"\[0, 1\]"):
        nn.DataParallel(nn.Linear(1, 1), device_ids=[0, 1])
    with pytest.raises(ValueError, match="process group"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
