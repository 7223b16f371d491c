"""Models as users write them, over a namespace: a Transformer block, GPT-2 small, ResNet-18."""

from benchmarks.data import fill


def classes(torch) -> dict:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        """Pre-norm, causal; [batch, time, dim] -> the same."""

        def __init__(self, dim, heads, approximate="none"):
            super().__init__()
            self.heads, self.approximate = heads, approximate
            self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc, self.out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
            q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate=self.approximate))

    class GPT2(nn.Module):
        """Token ids [batch, time] -> logits; the head shares the embedding's weight."""

        def __init__(self, vocabulary=50257, context=1024, dim=768, layers=12, heads=12):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
            self.h = nn.ModuleList([Block(dim, heads, "tanh") for _ in range(layers)])
            self.ln = nn.LayerNorm(dim)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
            for block in self.h:
                x = block(x)
            return F.linear(self.ln(x), self.wte.weight)

    class BasicBlock(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outside)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outside)
            self.shortcut = None
            if stride != 1 or inside != outside:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
                )

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    class ResNet18(nn.Module):
        """[batch, 3, height, width] -> [batch, classes]."""

        def __init__(self, classes=1000):
            super().__init__()
            self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn = nn.BatchNorm2d(64)
            self.pool = nn.MaxPool2d(3, 2, 1)
            sizes = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
            stages = [nn.Sequential(BasicBlock(i, o, s), BasicBlock(o, o, 1)) for i, o, s in sizes]
            self.stages = nn.Sequential(*stages)
            self.fc = nn.Linear(512, classes)

        def forward(self, x):
            x = self.pool(F.relu(self.bn(self.conv(x))))
            x = self.stages(x)
            return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    return {"Block": Block, "GPT2": GPT2, "ResNet18": ResNet18}


def made(torch, name, *arguments, **options):
    """The model `name` with the same numbers for every peer."""
    model = classes(torch)[name](*arguments, **options)
    fill(torch, model, name)
    return model
