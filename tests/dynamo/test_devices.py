"""Compiled functions and devices: graphs are of the CPU, and other tensors do not enter them."""

import rushlight as rl


def test_a_tensor_elsewhere_is_another_layout():
    runs = []

    def backend(graph, examples):
        runs.append(graph)
        return graph

    @rl.compile(backend=backend)
    def double(x):
        return x * 2

    there = rl.empty(3, device="meta")
    for _ in range(2):
        assert double(rl.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert double(there).device.type == "meta"
    assert len(runs) == 1  # the meta tensor ran as it stands


def test_the_default_device_is_guarded():
    @rl.compile
    def made(x):
        return x.sum() + rl.ones(3)

    assert made(rl.ones(2)).device.type == "cpu"
    with rl.device("meta"):
        assert made(rl.empty(2)).device.type == "meta"
    assert made(rl.ones(2)).tolist() == [3.0, 3.0, 3.0]


def test_a_move_breaks_the_graph():
    @rl.compile
    def moved(x):
        y = (x + 1).to("meta")
        with rl.device("meta"):
            z = rl.zeros(2)
        return x * 2, y, z

    x, y, z = moved(rl.ones(3))
    assert x.tolist() == [2.0, 2.0, 2.0] and y.device.type == z.device.type == "meta"
