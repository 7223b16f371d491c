"""A language model of two LSTM layers over characters of Python's standard library.

    python examples/lstm_lm.py                 trains and says the loss, then writes some text
    python examples/lstm_lm.py --steps 1000

The hidden state runs on from batch to batch (truncated backpropagation through time). A program as
a user of PyTorch writes it: only the two imports below say Rushlight.
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
    return "".join(c if c.isascii() else "?" for c in "".join(parts)[:limit])


class LanguageModel(nn.Module):
    """Token ids [time, batch] and a state -> logits [time, batch, vocabulary], the next state."""

    def __init__(self, vocabulary, dim=128, hidden=256, layers=2, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embed = nn.Embedding(vocabulary, dim)
        self.lstm = nn.LSTM(dim, hidden, num_layers=layers, dropout=dropout)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids, state=None):
        x = self.drop(self.embed(ids))
        x, state = self.lstm(x, state)
        return self.head(self.drop(x)), state


def columns(ids, batch):
    """The text as `batch` columns side by side: [length // batch, batch]."""
    rows = len(ids) // batch
    return ids[: rows * batch].view(batch, rows).t().contiguous()


def train_step(model, optimizer, x, y, state):
    """One truncated backpropagation: the loss, and the state cut off from its graph."""
    logits, state = model(x, state)
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss, tuple(s.detach() for s in state)


def write(model, start, count, letters):
    """`count` characters drawn one after the other."""
    model.eval()
    with torch.no_grad():
        ids, state, text = start, None, []
        for _ in range(count):
            logits, state = model(ids, state)
            ids = torch.multinomial(F.softmax(logits[-1] / 0.8, dim=-1), 1).t()
            text.append(letters[ids.item()])
    model.train()
    return "".join(text)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="characters a step and column")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--characters", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="train the compiled model")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.manual_seed(args.seed)
    text = read_text(args.characters)
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    data = columns(torch.tensor([number[c] for c in text], device=args.device), args.batch)
    model = LanguageModel(len(letters)).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    print(f"{len(text):,} characters; {sum(p.numel() for p in model.parameters()):,} parameters")
    run = torch.compile(model) if args.compile else model
    state, at, losses, began = None, 0, [], time.perf_counter()
    for step in range(1, args.steps + 1):
        if at + args.length + 1 > len(data):
            state, at = None, 0
        x, y = data[at : at + args.length], data[at + 1 : at + args.length + 1]
        loss, state = train_step(run, optimizer, x, y, state)
        schedule.step()
        at += args.length
        losses.append(loss.item())
        if step % 50 == 0 or step == args.steps:
            recent = sum(losses[-50:]) / len(losses[-50:])
            rate = step / (time.perf_counter() - began)
            print(
                f"step {step}/{args.steps}  loss {recent:.3f}  "
                f"perplexity {math.exp(recent):.1f}  {rate:.1f} steps/s"
            )
            sys.stdout.flush()
    if args.sample:
        start = torch.tensor([[number["\n"]]], device=args.device)
        print(write(model, start, args.sample, letters))
    return losses


if __name__ == "__main__":
    main()
