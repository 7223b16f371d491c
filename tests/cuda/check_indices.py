"""Indices and constants that a program makes on the CPU, used with tensors on a GPU: in eager mode
as in PyTorch, and in one graph where the program is compiled.
"""

import stand_in

import rushlight as rl
from rushlight import trace

stand_in.install()
stand_in.install_compiler()
x = rl.randn(4, 5)
there = x.cuda()
rows, mask = rl.tensor([2, 0]), rl.tensor([True, False, True, True])


def same(got, want):
    assert got.device.type == "cuda" and got.dtype is want.dtype, got
    assert rl.equal(got.detach().cpu(), want.detach()), (got, want)


def check_indices_on_the_cpu_read_what_lies_elsewhere():
    for key in (rows, [2, 0], (slice(None), rows), (rows, rows), mask, (mask, 1), (rows, None)):
        same(there[key], x[key])
    same(there[rows, rows.cuda()], x[rows, rows])
    stand_in.raises(RuntimeError, "one device", lambda: x[rows.cuda()])
    stand_in.raises(RuntimeError, "one device", lambda: there.index_select(0, rows))


def check_they_write_there_and_numbers_in_tensors_follow():
    for key in (rows, (slice(None), [2, 0]), mask, (rows, rows)):
        for value in (2.0, rl.tensor(2.0), rl.tensor(2.0).cuda()):
            a, b = there.clone(), x.clone()
            a[key] = value
            b[key] = 2.0
            same(a, b)
    want = x.index_put((rows,), rl.tensor(2.0), accumulate=True)
    same(there.index_put((rows,), rl.tensor(2.0), accumulate=True), want)
    same(there.clone().index_put_((mask,), rl.tensor(2.0)), x.index_put((mask,), rl.tensor(2.0)))
    assert there.clone().index_put_((rows,), rl.ones(5, device="cuda")).is_cuda
    stand_in.raises(RuntimeError, "one device", lambda: there.clone().index_put_((rows,), x[:2]))


def check_a_number_s_gradient_comes_back():
    value = rl.tensor(2.0, requires_grad=True)
    for key in (rows, mask):
        value.grad = None
        made = there.clone()
        made[key] = value
        made.sum().backward()
        assert value.grad.item() == 5 * len(x[key]) and not value.grad.is_cuda


def write(x):
    y = x.clone()
    y[:, [2, 0]] = 7.0
    y[[1, 3]] += 1.0
    return y


def made_where_results_are(x):
    y = x * 2
    positions = rl.arange(5, device=y.device) + rl.zeros(5, device=y.sum(0).device)
    return y + positions * rl.tensor([1.0, 2.0, 3.0, 4.0, 5.0], device=y[0].device)


def unused_until_written(x):
    index = rl.tensor([2, 0])
    index[0] = 1  # no constant any more: it stays where it was made
    return x[index] * 2


FUNCTIONS = {
    lambda x: x[:, [2, 0]] * 2: True,
    lambda x: x[[2, 0], 1:3] + 1: True,
    lambda x: x[rl.tensor([2, 0])] * 2: True,
    lambda x: x[rl.tensor([2, 0]).unsqueeze(0)] * 2: False,
    write: True,
    made_where_results_are: True,
    unused_until_written: False,
}


def check_constant_indices_are_made_where_the_graph_runs():
    for function, whole in FUNCTIONS.items():
        here, leaf = (v.clone().requires_grad_() for v in (x, there))
        want = function(here)
        with trace.collect() as records:
            got = rl.compile(function, fullgraph=whole)(leaf)
        told = [r.text for r in records if r.stage == "graph_break" or "raised" in r.text]
        assert bool(told) != whole, told
        fallbacks = [r.text for r in records if r.stage == "fallback" and "graph" in r.text]
        assert not fallbacks, fallbacks
        same(got, want)
        got.sum().backward()
        want.sum().backward()
        same(leaf.grad, here.grad)


stand_in.main(globals())
