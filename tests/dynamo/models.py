"""Well-known networks as ordinary model code, small: what a capture must take in one graph."""

import math

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F

# ---- ResNet-18


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, width=8, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inside = width
        for i, stride in enumerate((1, 2, 2, 2)):
            outside = width * 2**i
            layer = nn.Sequential(BasicBlock(inside, outside, stride), BasicBlock(outside, outside))
            setattr(self, f"layer{i + 1}", layer)
            inside = outside
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def causal(t):
    """Where position i may not look at position j: j > i."""
    at = torch.arange(t)
    return at.unsqueeze(1) < at


# ---- GPT-2


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads, self.width = heads, width
        self.register_buffer("bias", causal(block).view(1, 1, block, block))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t], float("-inf"))
        att = F.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.c_proj(y)


class GPTBlock(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, block)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(width, 4 * width),
                "act": nn.GELU(),
                "c_proj": nn.Linear(4 * width, width),
            }
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m["c_proj"](m["act"](m["c_fc"](self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, vocabulary=50, block=16, width=32, heads=4, layers=12):
        super().__init__()
        self.block_size = block
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(block, width),
                "drop": nn.Dropout(0.1),
                "h": nn.ModuleList([GPTBlock(width, heads, block) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets=None):
        b, t = tokens.size()
        assert t <= self.block_size, f"length {t} of at most {self.block_size}"
        pos = torch.arange(0, t, dtype=torch.long)
        x = self.transformer["drop"](self.transformer["wte"](tokens) + self.transformer["wpe"](pos))
        for block in self.transformer["h"]:
            x = block(x)
        logits = self.lm_head(self.transformer["ln_f"](x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


# ---- Llama block


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, width=32, heads=4, kv_heads=2, hidden=64):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, heads * self.size, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)

    def rotary(self, t):
        inv = 1.0 / 10000 ** (torch.arange(0, self.size, 2).float() / self.size)
        freqs = torch.arange(t).float().unsqueeze(1) * inv
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()

    def attend(self, x):
        b, t, _ = x.shape
        shape = lambda y, n: y.view(b, t, n, self.size).transpose(1, 2)
        q, k, v = (
            shape(self.q(x), self.heads),
            shape(self.k(x), self.kv_heads),
            shape(self.v(x), self.kv_heads),
        )
        cos, sin = self.rotary(t)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        repeat = self.heads // self.kv_heads
        k, v = (
            y[:, :, None]
            .expand(b, self.kv_heads, repeat, t, self.size)
            .reshape(b, self.heads, t, self.size)
            for y in (k, v)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size)
        scores = scores.masked_fill(causal(t), float("-inf"))
        return self.o((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, t, -1))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


# ---- ViT


class ViT(nn.Module):
    def __init__(self, image=16, patch=4, width=32, layers=3, heads=4, classes=10):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList([ViTBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ViTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads = heads

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .reshape(b, n, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        att = (q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5).softmax(dim=-1)
        x = x + self.proj((att @ v).transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.norm2(x))


# ---- U-Net


class DoubleConv(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, channels=3, classes=2, width=4):
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList()
        inside = channels
        for w in widths:
            self.down.append(DoubleConv(inside, w))
            inside = w
        self.pool = nn.MaxPool2d(2)
        self.middle = DoubleConv(inside, 2 * inside)
        self.up, self.join = nn.ModuleList(), nn.ModuleList()
        for w in reversed(widths):
            self.up.append(nn.ConvTranspose2d(2 * w, w, 2, 2))
            self.join.append(DoubleConv(2 * w, w))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips)):
            x = join(torch.cat([skip, up(x)], dim=1))
        return self.last(x)


def make():
    """name -> (model, arguments)."""
    tokens = torch.arange(24).reshape(2, 12) % 50
    image = torch.randn(2, 3, 16, 16)
    return {
        "resnet18": lambda: (ResNet18(), (torch.randn(2, 3, 32, 32),)),
        "gpt2": lambda: (GPT2(), (tokens, tokens)),
        "llama_block": lambda: (LlamaBlock(), (torch.randn(2, 6, 32),)),
        "vit": lambda: (ViT(), (image,)),
        "unet": lambda: (UNet(), (image,)),
    }
