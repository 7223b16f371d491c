"""A Transformer's block of torch's, for what compiles torch's graphs."""

from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Causal attention and a perceptron of four times the width, each after a norm."""

    def __init__(self, d=16, heads=2, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).split(d, -1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.o(y.transpose(1, 2).reshape(b, t, d)), self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.n2(x)))), self.dropout)
