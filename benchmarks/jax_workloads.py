"""The workloads for jax.jit, where they are short: W1 to W6 and W9. Each gives (case, step)."""

import jax
import jax.numpy as jnp

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


def block(x, p):
    b, t, d = x.shape
    h = norm(x, p["n1"], p["m1"])
    q, k, v = jnp.split(h @ p["qkv"] + p["qkv_b"], 3, -1)
    q, k, v = (z.reshape(b, t, 8, d // 8).transpose(0, 2, 1, 3) for z in (q, k, v))
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / (d // 8) ** 0.5, -1)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(b, t, d)
    x = x + y @ p["proj"] + p["proj_b"]
    h = norm(x, p["n2"], p["m2"])
    return x + gelu(h @ p["up"] + p["up_b"]) @ p["down"] + p["down_b"]


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


def w9():
    x, a, m = array("x", (32,)), array("a", (32,), 0.1), array("m", (32,), 0.01, 1.0)

    def chain(y, a, m):
        for _ in range(100):
            y = y + a
            y = y * m
        return y

    return jitted("W9", chain, x, a, m)


WORKLOADS = {
    "W1": w1, "W1v": lambda: w1(False), "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6, "W9": w9,
}  # fmt: skip
