"""A two-layer transformer encoder: forward, backward and twenty steps of AdamW as the oracle's."""

import numpy as np
import pytest

import rushlight as rl

WIDTH, HEADS, HIDDEN, TOKENS, BATCH, CLASSES = 32, 4, 64, 11, 3, 5


def encoder(lib):
    """The model's class, written once for both libraries."""
    nn = lib.nn
    F = nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x, mask):
            b, n, _ = x.shape
            q, k, v = (
                f(x).view(b, n, HEADS, WIDTH // HEADS).transpose(1, 2)
                for f in (self.q, self.k, self.v)
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.o(y.transpose(1, 2).reshape(b, n, WIDTH))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

        def forward(self, x, mask):
            x = self.norm1(x + self.attention(x, mask))
            return self.norm2(x + self.down(F.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(50, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, ids, mask):
            x = self.words(ids) + self.places(lib.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x, mask)
            return self.head(x.mean(1))

    return Encoder()


@pytest.fixture
def pair(oracle):
    oracle.manual_seed(0)
    theirs = encoder(oracle)
    ours = encoder(rl)
    state = {k: rl.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50, (BATCH, TOKENS))
    mask = np.ones((BATCH, 1, 1, TOKENS), bool)
    mask[1, ..., 7:] = mask[2, ..., 4:] = False
    target = rng.integers(0, CLASSES, (BATCH,))
    data = [tuple(lib.tensor(a) for a in (ids, mask, target)) for lib in (rl, oracle)]
    return ours, theirs, data


def near(a, b, tolerance=1e-5):
    a, b = a.detach().numpy(), b.detach().numpy()
    assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-3)


def loss_of(lib, model, data):
    ids, mask, target = data
    return lib.nn.functional.cross_entropy(model(ids, mask), target)


def test_forward_and_backward(pair, oracle):
    ours, theirs, data = pair
    near(ours(*data[0][:2]), theirs(*data[1][:2]))
    a, b = loss_of(rl, ours, data[0]), loss_of(oracle, theirs, data[1])
    near(a, b)
    a.backward()
    b.backward()
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        if name.endswith("k.bias"):  # no influence: softmax ignores it; only rounding is left
            assert np.abs(p.grad.numpy()).max() < 1e-6
            continue
        near(p.grad, q.grad, 2e-5)


def test_twenty_steps_of_adamw(pair, oracle):
    ours, theirs, data = pair
    losses = []
    for lib, model, batch in ((rl, ours, data[0]), (oracle, theirs, data[1])):
        optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        found = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = loss_of(lib, model, batch)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        if name.endswith("k.bias"):  # Adam normalises rounding errors to full steps
            continue
        near(p, q, 1e-4)


def test_training_leaves_memory_flat(pair):
    ours, _, data = pair
    optimizer = rl.optim.AdamW(ours.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss_of(rl, ours, data[0]).backward()
        optimizer.step()

    for _ in range(3):
        step()
    before, stats = rl._core.allocator_stats()["in_use"], rl._core.plan_stats()
    for _ in range(10):
        step()
    after = rl._core.plan_stats()
    assert rl._core.allocator_stats()["in_use"] == before
    assert (after["plans"], after["layouts"], after["nodes"]) == (
        stats["plans"], stats["layouts"], stats["nodes"],
    )  # fmt: skip
    assert after["misses"] == stats["misses"]
