"""A character-level GPT, trained on the text of Python's own standard library.

    python examples/train_char_gpt.py                       trains, samples, saves char_gpt.pt
    python examples/train_char_gpt.py --resume --steps 600  goes on from the checkpoint
    python examples/train_char_gpt.py --compile             the same through the compiler

A program as a user of PyTorch writes it: only the two imports below say Rushlight. The loss is
in nats a character; the entropy of single characters (what a model without context reaches at best)
is printed beside it.
"""

import argparse
import math
import sys
import sysconfig
import time
from pathlib import Path

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn


def read_text(limit):
    """Modules of the standard library, in the order of their names, up to `limit` characters."""
    parts, total = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        part = path.read_text(encoding="utf-8", errors="ignore")
        parts.append(part)
        total += len(part)
        if total >= limit:
            break
    text = "".join(parts)[:limit]
    return "".join(c if c.isascii() else "?" for c in text)


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads, dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token ids [batch, time] -> logits [batch, time, vocabulary]."""

    def __init__(self, vocabulary, context, layers=4, dim=128, heads=4, dropout=0.0):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(context, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(dim, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids):
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(place))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, ids, count, temperature=0.8):
        for _ in range(count):
            logits = self(ids[:, -self.context :])[:, -1, :] / temperature
            chosen = torch.multinomial(torch.softmax(logits, dim=-1), num_samples=1)
            ids = torch.cat([ids, chosen], dim=1)
        return ids


def make_optimizer(model, lr, steps, warmup):
    """AdamW, no weight decay on norms and biases; linear warm-up, then a cosine down to a tenth."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def batch_of(data, size, context, generator=None):
    """Random windows of the text: inputs and, one character on, targets; both [size, context]."""
    starts = torch.randint(len(data) - context, (size,), generator=generator).tolist()
    x = torch.stack([data[i : i + context] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + context] for i in starts])
    return x, y


def train_step(model, optimizer, x, y):
    """Forward, backward, clip, update; the loss as a tensor."""
    logits = model(x)
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def evaluate(model, data, size, batches=4):
    """Mean loss on windows that are the same at every call."""
    model.eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        total = 0.0
        for _ in range(batches):
            x, y = batch_of(data, size, model.context, generator)
            logits = model(x)
            total += F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1)).item()
    model.train()
    return total / batches


def unigram_entropy(ids, vocabulary):
    counts = torch.bincount(ids, minlength=vocabulary).double()
    p = counts[counts > 0] / counts.sum()
    return -(p * p.log()).sum().item()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--characters", type=int, default=2_000_000, help="how much text to read")
    parser.add_argument("--sample", type=int, default=200, help="characters to write at the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--checkpoint", type=Path, default=Path("char_gpt.pt"))
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--compile", action="store_true", help="train the compiled model")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    text = read_text(args.characters)
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    data = torch.tensor([number[c] for c in text], device=args.device)
    held = len(data) // 20
    training, validation = data[:-held], data[-held:]
    entropy = unigram_entropy(training, len(letters))
    model = GPT(len(letters), args.context, dropout=args.dropout).to(args.device)
    warmup = max(1, args.steps // 10)
    optimizer, schedule = make_optimizer(model, args.lr, args.steps, warmup)
    first = 0
    if args.resume:
        state = torch.load(args.checkpoint, map_location=args.device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        first = state["step"]
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(letters)} distinct, unigram entropy {entropy:.3f} nats")
    print(f"{count:,} parameters, {args.steps - first} steps of {args.batch} x {args.context}")
    run = torch.compile(model) if args.compile else model
    began = time.perf_counter()
    for step in range(first, args.steps):
        x, y = batch_of(training, args.batch, args.context)
        loss = train_step(run, optimizer, x, y)
        schedule.step()
        show(step + 1, args.steps, first, loss.item(), time.perf_counter() - began)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    score = evaluate(model, validation, args.batch)
    print(f"validation loss {score:.3f} nats a character (unigram entropy {entropy:.3f})")
    state = {
        "step": args.steps,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(state, args.checkpoint)
    print(f"saved {args.checkpoint}")
    if args.sample:
        model.eval()
        start = torch.tensor([[number["\n"]]], device=args.device)
        written = model.generate(start, args.sample)[0].tolist()
        print("".join(letters[i] for i in written))
    return score, entropy


def show(step, steps, first, loss, seconds):
    """A progress bar on a terminal; a line every fiftieth step elsewhere."""
    rate = (step - first) / seconds
    if sys.stderr.isatty():
        filled = 30 * step // steps
        bar = "#" * filled + "." * (30 - filled)
        print(
            f"\r[{bar}] {step}/{steps}  loss {loss:.3f}  {rate:.1f} steps/s",
            end="",
            file=sys.stderr,
        )
    elif step % 50 == 0 or step == steps:
        print(f"step {step}/{steps}  loss {loss:.3f}  {rate:.1f} steps/s")


if __name__ == "__main__":
    main()
