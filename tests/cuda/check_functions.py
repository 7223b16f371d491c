"""Functions that make helpers of their own: on operands of the GPU no call meets two devices."""

import copy
import pickle

import stand_in

import rushlight as rl
from rushlight import nn

stand_in.install()
F = nn.functional
x, v = rl.randn(4, 5, device="cuda"), rl.randn(6, device="cuda")
i, img = rl.tensor([0, 2, 1], device="cuda"), rl.randn(2, 3, 8, 8, device="cuda")
ids, cpu_i = rl.tensor([[1, 2], [3, 0]], device="cuda"), rl.tensor([0, 2])
CALLS = {
    "bincount": lambda: rl.bincount(i),
    "x[[0,1]]": lambda: x[[0, 1]],
    "x[mask]": lambda: x[x > 0],
    "x[i,1]": lambda: x[i, 1],
    "x[cpu_i]": lambda: x[cpu_i],
    "x[True]": lambda: x[True],
    "x[...,None]": lambda: x[..., None],
    "x[i]=1": lambda: x.clone().__setitem__(i, 1.0),
    "x[mask]=0": lambda: x.clone().__setitem__(x > 0, 0.0),
    "x[1:,2]=t": lambda: x.clone().__setitem__((slice(1, None), 2), rl.ones(3)),
    "x[cpu_i]=": lambda: x.clone().__setitem__(cpu_i, 2.0),
    "unique": lambda: rl.unique(i),
    "unique_consecutive": lambda: rl.unique_consecutive(i),
    "multinomial": lambda: rl.multinomial(v.abs(), 2),
    "bernoulli": lambda: rl.bernoulli(v.sigmoid()),
    "normal_": lambda: x.clone().normal_(),
    "uniform_": lambda: x.clone().uniform_(),
    "hann": lambda: rl.hann_window(5, device="cuda"),
    "vander": lambda: rl.vander(v),
    "quantile": lambda: rl.quantile(v, 0.5),
    "median": lambda: v.median(),
    "topk": lambda: v.topk(2),
    "sort": lambda: v.sort(),
    "argsort": lambda: v.argsort(),
    "kth": lambda: v.kthvalue(2),
    "mode": lambda: i.mode(),
    "searchsorted": lambda: rl.searchsorted(v.sort()[0], v),
    "bucketize": lambda: rl.bucketize(v, v.sort()[0]),
    "isin": lambda: rl.isin(i, rl.tensor([1], device="cuda")),
    "histc": lambda: rl.histc(v, 4),
    "cumsum": lambda: v.cumsum(0),
    "cumprod": lambda: v.cumprod(0),
    "cummax": lambda: v.cummax(0),
    "logcumsumexp": lambda: v.logcumsumexp(0),
    "gather": lambda: x.gather(1, rl.tensor([[0, 1]] * 4, device="cuda")),
    "scatter": lambda: x.scatter(1, rl.tensor([[0, 1]] * 4, device="cuda"), 1.0),
    "index_add": lambda: x.index_add(0, i, rl.ones(3, 5, device="cuda")),
    "index_select": lambda: x.index_select(0, i),
    "masked_fill": lambda: x.masked_fill(x > 0, 1.0),
    "take_along": lambda: rl.take_along_dim(x, x.argmax(1, keepdim=True), 1),
    "nonzero": lambda: rl.nonzero(x > 0),
    "where1": lambda: rl.where(x > 0),
    "tril": lambda: rl.tril(x),
    "triu_indices": lambda: rl.triu_indices(3, 3, device="cuda"),
    "diag": lambda: rl.diag(v),
    "diag_embed": lambda: rl.diag_embed(v),
    "eye": lambda: rl.eye(3, device="cuda"),
    "cat": lambda: rl.cat([x, x]),
    "stack": lambda: rl.stack([x, x]),
    "roll": lambda: x.roll(1, 0),
    "flip": lambda: x.flip(0),
    "repeat": lambda: x.repeat(2, 1),
    "repeat_interleave": lambda: x.repeat_interleave(2),
    "tile": lambda: x.tile(2),
    "meshgrid": lambda: rl.meshgrid(v, v, indexing="ij"),
    "cdist": lambda: rl.cdist(x, x),
    "einsum": lambda: rl.einsum("ij,kj->ik", x, x),
    "tensordot": lambda: rl.tensordot(x, x, ([1], [1])),
    "outer": lambda: rl.outer(v, v),
    "norm": lambda: x.norm(),
    "std": lambda: x.std(0),
    "var_mean": lambda: rl.var_mean(x),
    "logsumexp": lambda: x.logsumexp(1),
    "allclose": lambda: rl.allclose(x, x),
    "equal": lambda: rl.equal(x, x),
    "isclose": lambda: rl.isclose(x, x),
    "clamp": lambda: x.clamp(0, 1),
    "lerp": lambda: rl.lerp(x, x, 0.5),
    "addcmul": lambda: rl.addcmul(x, x, x),
    "trapezoid": lambda: rl.trapezoid(v),
    "cov": lambda: rl.cov(x),
    "corrcoef": lambda: rl.corrcoef(x),
    "cross": lambda: rl.cross(x[:, :3], x[:, :3], dim=1),
    "dropout": lambda: F.dropout(x, 0.5),
    "alpha_dropout": lambda: F.alpha_dropout(x, 0.5),
    "dropout2d": lambda: F.dropout2d(img),
    "gumbel": lambda: F.gumbel_softmax(x, hard=True),
    "embedding_bag": lambda: F.embedding_bag(ids, rl.randn(5, 3, device="cuda"), mode="mean"),
    "embedding_bag_max": lambda: F.embedding_bag(ids, rl.randn(5, 3, device="cuda"), mode="max"),
    "one_hot": lambda: F.one_hot(i),
    "ce": lambda: F.cross_entropy(x, rl.tensor([0, 1, 2, 3], device="cuda")),
    "ce_w": lambda: F.cross_entropy(
        x,
        rl.tensor([0, 1, 2, 3], device="cuda"),
        weight=rl.ones(5, device="cuda"),
        label_smoothing=0.1,
    ),
    "nll": lambda: F.nll_loss(x, rl.tensor([0, 1, 2, 3], device="cuda")),
    "mml": lambda: F.multi_margin_loss(x, rl.tensor([0, 1, 2, 3], device="cuda")),
    "mlml": lambda: F.multilabel_margin_loss(x, rl.tensor([[0, 1, -1, -1, -1]] * 4, device="cuda")),
    "bce": lambda: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    "kl": lambda: F.kl_div(x.log_softmax(1), x.softmax(1)),
    "huber": lambda: F.huber_loss(x, x),
    "conv": lambda: F.conv2d(img, rl.randn(4, 3, 3, 3, device="cuda")),
    "maxpool": lambda: F.max_pool2d(img, 2),
    "avgpool": lambda: F.avg_pool2d(img, 2),
    "adaptive": lambda: F.adaptive_avg_pool2d(img, 1),
    "interp": lambda: F.interpolate(img, scale_factor=2, mode="bilinear"),
    "unfold": lambda: F.unfold(img, 2),
    "pad": lambda: F.pad(img, (1, 1, 1, 1), mode="reflect"),
    "bn": lambda: nn.BatchNorm2d(3).cuda()(img),
    "gn": lambda: F.group_norm(img, 3),
    "in": lambda: F.instance_norm(img),
    "sdpa": lambda: F.scaled_dot_product_attention(img, img, img, is_causal=True),
    "sdpa_mask": lambda: F.scaled_dot_product_attention(
        img, img, img, attn_mask=rl.ones(8, 8, dtype=rl.bool, device="cuda")
    ),
    "mha": lambda: nn.MultiheadAttention(8, 2, batch_first=True).cuda()(
        img[:, 0], img[:, 0], img[:, 0]
    ),
    "tel": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()(img[:, 0]),
    "lstm": lambda: nn.LSTM(8, 4, batch_first=True).cuda()(img[:, 0]),
    "gru": lambda: nn.GRU(8, 4, batch_first=True).cuda()(img[:, 0]),
    "rnn": lambda: nn.RNN(8, 4, batch_first=True).cuda()(img[:, 0]),
    "mask": lambda: nn.Transformer.generate_square_subsequent_mask(4, device="cuda"),
    "pack": lambda: nn.utils.rnn.pad_packed_sequence(
        nn.utils.rnn.pack_padded_sequence(
            img[:, 0], rl.tensor([5, 8]), batch_first=True, enforce_sorted=False
        )
    ),
    "pad_seq": lambda: nn.utils.rnn.pad_sequence([v, v[:3]]),
    "lstm_packed": lambda: nn.LSTM(8, 4, batch_first=True).cuda()(
        nn.utils.rnn.pack_padded_sequence(
            img[:, 0], rl.tensor([5, 8]), batch_first=True, enforce_sorted=False
        )
    ),
    "linalg.norm": lambda: rl.linalg.norm(x),
    "matrix_power": lambda: rl.linalg.matrix_power(rl.eye(3, device="cuda"), 3),
    "item": lambda: x[0, 0].item(),
    "int": lambda: int(i[0]),
    "float": lambda: float(v[0]),
    "index": lambda: [1, 2, 3][i[1]],
    "len": lambda: len(x),
    "iter": lambda: [r.sum() for r in x],
    "contains": lambda: 2 in i,
    "numpy": lambda: x.cpu().numpy(),
    "deepcopy": lambda: copy.deepcopy(nn.Linear(2, 2).cuda()),
    "pickle": lambda: pickle.loads(pickle.dumps(x)),
    "type": lambda: x.type(),
    "type2": lambda: x.type("torch.cuda.HalfTensor"),
    "half": lambda: x.half(),
    "storage": lambda: x.untyped_storage().nbytes(),
    "new_tensor": lambda: x.new_tensor([1.0]),
    "new_full": lambda: x.new_full((2,), 1.0),
    "full_like": lambda: rl.full_like(x, 2),
    "rand_like": lambda: rl.rand_like(x),
    "randint_like": lambda: rl.randint_like(x, 5),
    "resize_": lambda: x.clone().resize_(2, 3),
    "data": lambda: x.data,
    "to_other": lambda: x.to(v),
    "testing": lambda: rl.testing.assert_close(x, x),
    "spectral": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3).cuda())(
        rl.ones(3, device="cuda")
    ),
    "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(3, 3)).cuda()(rl.ones(3, device="cuda")),
    "grad_norm": lambda: nn.utils.clip_grad_norm_([nn.Parameter(x)], 1.0),
    "p2v": lambda: nn.utils.parameters_to_vector(nn.Linear(2, 2).cuda().parameters()),
    "jac": lambda: rl.autograd.functional.jacobian(lambda t: t * 2, v),
    "hess": lambda: rl.autograd.functional.hessian(lambda t: (t**3).sum(), v),
    "checkpoint": lambda: rl.utils.checkpoint.checkpoint(
        lambda t: t * 2, v.clone().requires_grad_(), use_reentrant=False
    ),
    "compile": lambda: rl.compile(lambda t: (t * 2 + 1).relu().sum(), backend="eager")(x),
    "swa": lambda: rl.optim.swa_utils.AveragedModel(nn.Linear(2, 2).cuda()).update_parameters(
        nn.Linear(2, 2).cuda()
    ),
}
OPTIMIZERS = (
    "Adam",
    "AdamW",
    "SGD",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "Rprop",
    "ASGD",
    "LBFGS",
)


def check_functions():
    failed = {}
    for name, call in CALLS.items():
        try:
            call()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    assert not failed, "\n".join(f"{k}: {v}" for k, v in failed.items())


def check_optimizers():
    for name in OPTIMIZERS:
        if not hasattr(rl.optim, name):
            continue
        net = nn.Linear(3, 2).cuda()
        optimizer = getattr(rl.optim, name)(net.parameters(), lr=0.01)

        def closure(net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(rl.ones(1, 3, device="cuda")).pow(2).sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step(closure)


def check_loaders_pin_their_batches():
    data = rl.utils.data.TensorDataset(rl.arange(6.0), rl.arange(6))
    for a, b in rl.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert a.is_pinned() and b.is_pinned() and a.cuda(non_blocking=True).is_cuda
    (a, b), *_ = rl.utils.data.DataLoader(data, batch_size=4)
    assert not a.is_pinned()


stand_in.main(globals())
