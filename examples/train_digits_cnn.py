"""A small convolutional network learns to read handwritten digits (scikit-learn's, 8 x 8 pixels).

    python examples/train_digits_cnn.py                trains and says the accuracy on unseen digits
    python examples/train_digits_cnn.py --epochs 5

A program as a user of PyTorch writes it: only the imports below say Rushlight.
"""

import argparse
import time

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn


def digits():
    """(images [1797, 1, 8, 8] between 0 and 1, labels [1797])."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images).to(torch.float32).unsqueeze(1) / 16
    return images, torch.from_numpy(data.target).to(torch.int64)


class CNN(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(2 * width * 2 * 2, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        return self.fc(torch.flatten(x, 1))


def train_step(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def accuracy(model, x, y):
    """The fraction of images whose highest score is that of their digit."""
    model.eval()
    with torch.no_grad():
        right = model(x).argmax(1) == y
    model.train()
    return right.to(torch.float32).mean().item()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="A convolutional network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="train the compiled model")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    x, y = (t.to(options.device) for t in digits())
    order = torch.randperm(len(x)).to(options.device)
    x, y = x[order], y[order]
    train_x, train_y, test_x, test_y = x[:1437], y[:1437], x[1437:], y[1437:]
    model = CNN().to(options.device)
    print(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    run = torch.compile(model) if options.compile else model
    started = time.perf_counter()
    for epoch in range(options.epochs):
        total = 0.0
        order = torch.randperm(len(train_x)).to(options.device)
        for chosen in order.split(options.batch):
            loss = train_step(run, optimizer, train_x[chosen], train_y[chosen])
            total += loss.item() * len(chosen)
        print(
            f"epoch {epoch + 1:2d}  loss {total / len(train_x):.4f}  "
            f"accuracy {accuracy(model, test_x, test_y):.4f}"
        )
    seconds = time.perf_counter() - started
    print(
        f"{options.epochs} epochs in {seconds:.2f} s; accuracy on unseen digits "
        f"{accuracy(model, test_x, test_y):.4f}"
    )


if __name__ == "__main__":
    main()
