"""The workloads for jax.jit, W1 to W9. Each gives (case, step)."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.data import array as numbers


def array(name, shape, scale=1.0, shift=0.0):
    return jnp.asarray(numbers(name, shape, scale, shift))


def jitted(case, function, *arguments):
    compiled = jax.jit(function)
    return case, lambda: compiled(*arguments).block_until_ready()


def w1(rows=True):
    x, b = array("x", (1024, 1024)), array("b", (1024, 1024) if rows else (1024,))
    return jitted("W1" if rows else "W1v", lambda x, b: jax.nn.relu(x + b) * 2, x, b)


def norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def w2():
    x, w, b = array("x", (4096, 1024)), array("w", (1024,), 0.1, 1.0), array("b", (1024,), 0.1)
    return jitted("W2", lambda x, w, b: gelu(norm(x, w, b)), x, w, b)


def w3():
    return jitted("W3", lambda x: jax.nn.softmax(x, -1), array("x", (4096, 4096)))


def w4():
    layers = [(array(f"w{i}", (1024, 1024), 0.03), array(f"b{i}", (1024,), 0.03)) for i in range(3)]

    def model(x, layers):
        for w, b in layers:
            x = gelu(x @ w + b)
        return x

    return jitted("W4", model, array("x", (64, 1024)), layers)


def block(x, p, heads=8, tanh=False):
    b, t, d = x.shape
    h = norm(x, p["n1"], p["m1"])
    q, k, v = jnp.split(h @ p["qkv"] + p["qkv_b"], 3, -1)
    q, k, v = (z.reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3) for z in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, -1)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, d)
    x = x + y @ p["proj"] + p["proj_b"]
    h = norm(x, p["n2"], p["m2"])
    h = jax.nn.gelu(h @ p["up"] + p["up_b"], approximate=tanh)
    return x + h @ p["down"] + p["down_b"]


def parameters(d=512):
    made = {k: array(k, (d,), 0.1, 1.0) for k in ("n1", "n2")}
    made |= {k: array(k, (d,), 0.1) for k in ("m1", "m2", "proj_b", "down_b")}
    made |= {"qkv_b": array("qkv_b", (3 * d,), 0.1), "up_b": array("up_b", (4 * d,), 0.1)}
    shapes = {"qkv": (d, 3 * d), "proj": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    return made | {k: array(k, shape, 0.04) for k, shape in shapes.items()}


def w5():
    return jitted("W5", block, array("x", (4, 256, 512)), parameters())


def w6():
    x, y, p = array("x", (4, 256, 512)), array("y", (4, 256, 512)), parameters()

    def train(p, x, y):
        value, grads = jax.value_and_grad(lambda p: ((block(x, p) - y) ** 2).mean())(p)
        return value, jax.tree.map(lambda a, g: a - 0.0 * g, p, grads)

    compiled, held = jax.jit(train, donate_argnums=0), [p]

    def step():
        value, held[0] = compiled(held[0], x, y)
        jax.block_until_ready(held[0])
        return value

    return "W6", step


def w7():
    layers = [parameters(768) for _ in range(12)]
    tokens, places = array("wte", (50257, 768), 0.04), array("wpe", (1024, 768), 0.04)
    weight, bias = array("n", (768,), 0.1, 1.0), array("m", (768,), 0.1)
    ids = jnp.asarray(np.random.default_rng(99).integers(0, 50257, size=(1, 128)))

    def model(ids, layers, tokens, places, weight, bias):
        x = tokens[ids] + places[: ids.shape[1]]
        for p in layers:
            x = block(x, p, 12, True)
        return norm(x, weight, bias) @ tokens.T

    return jitted("W7", model, ids, layers, tokens, places, weight, bias)


def convolved(x, w, stride, pad):
    sides = [(pad, pad), (pad, pad)]
    return jax.lax.conv_general_dilated(x, w, (stride, stride), sides)


def normed(x, p):
    """Batch norm by fixed statistics: mean 0, variance 1."""
    scale = p["scale"] / (1 + 1e-5) ** 0.5
    return x * scale[:, None, None] + p["shift"][:, None, None]


def w8():
    def layer(inside, outside, size):
        w = array(f"c{inside}.{outside}.{size}", (outside, inside, size, size), inside**-0.5 / size)
        return {"w": w, "scale": array("s", (outside,), 0.05, 1.0),
                "shift": array("t", (outside,), 0.05)}  # fmt: skip

    blocks, strides = [], []
    for inside, outside, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        for i, step in ((inside, stride), (outside, 1)):
            short = None if step == 1 and i == outside else layer(i, outside, 1)
            blocks.append((layer(i, outside, 3), layer(outside, outside, 3), short))
            strides.append(step)
    stem, head, bias = layer(3, 64, 7), array("fc", (512, 1000), 0.04), array("b", (1000,), 0.05)

    def model(x, stem, blocks, head, bias):
        x = jax.nn.relu(normed(convolved(x, stem["w"], 2, 3), stem))
        sides = ((0, 0), (0, 0), (1, 1), (1, 1))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), sides)
        for (a, b, short), stride in zip(blocks, strides):
            y = jax.nn.relu(normed(convolved(x, a["w"], stride, 1), a))
            y = normed(convolved(y, b["w"], 1, 1), b)
            if short is not None:
                x = normed(convolved(x, short["w"], stride, 0), short)
            x = jax.nn.relu(x + y)
        return x.mean((2, 3)) @ head + bias

    return jitted("W8", model, array("x", (4, 3, 224, 224)), stem, blocks, head, bias)


def w9():
    x, a, m = array("x", (32,)), array("a", (32,), 0.1), array("m", (32,), 0.01, 1.0)

    def chain(y, a, m):
        for _ in range(100):
            y = y + a
            y = y * m
        return y

    return jitted("W9", chain, x, a, m)


WORKLOADS = {
    "W1": w1, "W1v": lambda: w1(False), "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "W7": w7,
    "W8": w8, "W9": w9,
}  # fmt: skip
