"""Compiled functions on a GPU: one graph, kernels for it, forward and backward, tensors made on the
device; the same results as on the CPU. The loops of each kernel run as C++ in the stand-in driver.
"""

import tempfile

import stand_in

import rushlight as rl
from rushlight import config, nn, trace
from rushlight.inductor import device_code, recall
from rushlight.nn import functional as F

stand_in.install()


# Programs are not kept: their images name code of this process.
keep = stand_in.install_compiler()


def close(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape)
    assert rl.allclose(a.cpu(), b, rtol=1e-4, atol=1e-5), (a, b)


def same_on_both(function, *inputs, graphs=1):
    """Compiled on the device, eager on the CPU."""
    there = [x.cuda() for x in inputs]
    with trace.collect() as records:
        result = rl.compile(function)(*there)
    close(result, function(*inputs))
    assert result.device.type == "cuda"
    breaks = [r.text for r in records if r.stage == "graph_break" or "raised" in r.text]
    assert not breaks, breaks
    made = [r for r in records if r.stage == "wrapper"]
    assert len(made) == graphs, len(made)
    return made[0].text


def check_a_chain_is_one_kernel():
    text = same_on_both(lambda x, b: rl.relu(x + b) * 2, rl.randn(30, 40), rl.randn(40))
    assert text.count("fused_") == 1


def check_every_loop_form_keeps_its_conditions():
    same_on_both(lambda x: rl.softmax(x, -1), rl.randn(20, 70))
    same_on_both(lambda x: rl.softmax(x, 0), rl.randn(70, 20))
    same_on_both(lambda x: (x * 2).sum(), rl.randn(170, 100))
    same_on_both(lambda x: (x * 2).sum(0), rl.randn(600, 48))
    same_on_both(lambda x, y: x.t() + y, rl.randn(30, 40), rl.randn(40, 30))
    same_on_both(lambda x: x.permute(4, 2, 0, 3, 1) * 2, rl.randn(2, 3, 4, 5, 2))
    same_on_both(lambda x: F.layer_norm(x, (64,)).mean(1), rl.randn(20, 64))


def check_equal_groups_load_one_image():
    def function(x, w):
        for _ in range(4):
            x = rl.relu(x @ w) * 2
        return x

    inputs = [rl.randn(4, 8).cuda(), rl.randn(8, 8).cuda()]
    run = rl.compile(function)
    stand_in.calls()
    run(*inputs)
    rl.cuda.synchronize()
    made = [line.split()[:2] for line in stand_in.calls()]
    assert made.count(["load", "module"]) == 1, made
    assert sum(line[0] == "launch" for line in made) == 4, made


def many_results(x, w):
    """More than a launch writes, of one operand: each is read by a product of its own."""
    t = (x * 0.5).sigmoid()
    u, v = t + 1.0, t * 1.25
    made = [u * 2, v - u, u * u, v * t, u - t, v + 3, t * t, (v - 2) * t]
    return [a @ w for a in made]


def check_more_results_than_a_launch_has():
    text = same_on_both(lambda x, w: sum(many_results(x, w)), rl.randn(30, 8), rl.randn(8, 8))
    assert " ops.mul(" not in text, text  # every operator is in a kernel


def check_groups_without_a_kernel_overwrite_nothing():
    """Run as its operators, a group writes no result over what another of them reads."""

    def function(x):
        y = x.cumsum(1)  # the graph's own memory, which the group may take
        a, b = y + 1.0, y * 2.0
        return rl.cat([a * b, y - a, a.cumsum(1)], 1)

    real, device_code.write = device_code.write, refused
    try:
        text = same_on_both(function, rl.randn(30, 8))
    finally:
        device_code.write = real
    assert "fused_" not in text.replace("# fused_", ""), text


def refused(group, low):
    raise NotImplementedError("[test] no kernel")


def check_tensors_are_made_on_the_graphs_device():
    def positions(x):
        made = rl.arange(x.shape[1], device=x.device) + rl.zeros(x.shape[1], device=x.device)
        return x + made * rl.full((1,), 2.0, device=x.device)

    same_on_both(positions, rl.randn(3, 8))


def check_an_unaligned_view_is_taken():
    x = rl.randn(41)
    compiled = rl.compile(lambda a: rl.exp(a) * 2)
    there = x.cuda()[1:]
    assert there.data_ptr() % 16
    close(compiled(there), rl.exp(x[1:]) * 2)


def check_a_program_is_found_again_with_its_kernels():
    def run(x, w, b):
        mask = rl.arange(8, device=x.device) > rl.arange(8, device=x.device).view(8, 1)
        y = rl.relu(F.linear(x, w, b)) * 2 + x.sum()
        return rl.where(mask, y, y.flip(0)).sum(1), rl.softmax(y, 1)

    found, lowered, recalled = [], [], []

    def counting(*groups):
        lowered.append(groups)
        return stand_in.built(*groups)

    def find(*asked):
        recalled.append(real(*asked))
        return recalled[-1]

    real, recall.find = recall.find, find
    recall.keep, device_code.build_groups = keep, counting
    inputs = [rl.randn(*s).cuda().requires_grad_() for s in ((8, 8), (8, 8), (8,))]
    try:
        with config.changed(cache_dir=tempfile.mkdtemp()):
            for _ in range(2):
                outs = rl.compile(run)(*inputs)
                found.append([*outs, *rl.autograd.grad(sum(o.sum() for o in outs), inputs)])
    finally:
        recall.find, recall.keep, device_code.build_groups = real, lambda *_: None, stand_in.built
    assert len(lowered) == 2 and recalled[:2] == [None, None], recalled
    assert [type(r) for r in recalled[2:]] == [recall.Recalled] * 2, recalled
    for a, b in zip(*found):
        close(b, a.detach().cpu())
    assert "fused_" in recalled[2].text  # lowered now, for who asks


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        q, k, v = (t.view(b, s, self.h, d // self.h).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.block, self.n = Block(32, 4), nn.LayerNorm(32)
        self.head = nn.Linear(32, 50, bias=False)

    def forward(self, i, t):
        x = self.tok(i) + self.pos(rl.arange(i.shape[1], device=i.device))
        return F.cross_entropy(self.head(self.n(self.block(x))).flatten(0, 1), t.flatten())


def check_a_transformer_trains():
    rl.manual_seed(0)
    here = Model()
    there = Model()
    there.load_state_dict(here.state_dict())
    there = there.cuda()
    i, t = rl.randint(0, 50, (2, 12)), rl.randint(0, 50, (2, 12))
    expected = here(i, t)
    expected.backward()
    with trace.collect() as records:
        loss = rl.compile(there)(i.cuda(), t.cuda())
        loss.backward()
    close(loss.detach(), expected.detach())
    for (name, p), q in zip(there.named_parameters(), here.parameters()):
        assert p.grad is not None and p.grad.device.type == "cuda", name
        close(p.grad, q.grad)
    told = [r.text for r in records if r.stage == "graph_break" or "raised" in r.text]
    assert not told, told
    assert len([r for r in records if r.stage == "wrapper"]) == 2  # forward and backward


stand_in.main(globals())
