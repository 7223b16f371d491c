"""Trains a three-layer perceptron to tell the arms of a spiral apart, and prints its accuracy.

    python examples/train_mlp.py [--steps 300] [--arms 3] [--seed 0]

The points are made here: each arm turns once around the centre, with noise.
"""

import argparse
import math
import time

import rushlight as torch
import rushlight.nn as nn
import rushlight.nn.functional as F


def spirals(arms, points):
    """points[arms * points, 2], labels[arms * points]: noisy spiral arms, every arm one class."""
    radius = torch.arange(points).to(torch.float32) / points + 0.02
    xs, labels = [], []
    for arm in range(arms):
        angle = radius * 5 + 2 * math.pi * arm / arms + torch.randn(points) * 0.15
        turn = torch.stack([torch.cos(angle), torch.sin(angle)], 1)
        xs.append(turn * radius.unsqueeze(1))
        labels.append(torch.full((points,), arm, dtype=torch.int64))
    return torch.cat(xs), torch.cat(labels)


class MLP(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, classes),
        )

    def forward(self, x):
        return self.layers(x)


def accuracy(model, x, y):
    """The fraction of points whose highest score is that of their class."""
    model.eval()
    with torch.no_grad():
        right = model(x).argmax(1) == y
    model.train()
    return right.to(torch.float32).mean().item()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="A three-layer perceptron on spirals.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--arms", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="train the compiled model")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    x, y = (t.to(options.device) for t in spirals(options.arms, 200))
    held_out_x, held_out_y = (t.to(options.device) for t in spirals(options.arms, 100))
    model = MLP(64, options.arms).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    print(model)

    run = torch.compile(model) if options.compile else model
    started = time.perf_counter()
    for step in range(options.steps):
        loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(
                f"step {step:4d}  loss {loss.item():.4f}  lr {schedule.get_last_lr()[0]:.4f}  "
                f"accuracy {accuracy(model, x, y):.3f}"
            )
    seconds = time.perf_counter() - started
    print(
        f"{options.steps} steps in {seconds:.2f} s; accuracy on unseen points "
        f"{accuracy(model, held_out_x, held_out_y):.3f}"
    )


if __name__ == "__main__":
    main()
