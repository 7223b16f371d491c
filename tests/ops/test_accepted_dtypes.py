"""Dtypes that an operator does not take: the same calls raise the same kind of error as PyTorch's,
eager, on fakes and compiled, and the message names the dtype.
"""

import operator
import pickle

import pytest

import rushlight
from rushlight.fake import fake


def upwards(m, x):
    return m.nn.functional.conv_transpose1d(x, x.view((2, 2, 2)))


BOOLS, WHOLE = ("bool",), ("bool", "uint8", "int8", "int16", "int32", "int64")
REFUSED = {
    "gelu": (WHOLE, lambda m, x: m.nn.functional.gelu(x)),
    "gelu of tanh": (WHOLE, lambda m, x: m.nn.functional.gelu(x, approximate="tanh")),
    "silu": (WHOLE, lambda m, x: m.nn.functional.silu(x)),
    "elu": (WHOLE, lambda m, x: m.nn.functional.elu(x)),
    "selu": (WHOLE, lambda m, x: m.nn.functional.selu(x)),
    "leaky_relu": (WHOLE, lambda m, x: m.nn.functional.leaky_relu(x)),
    "hardswish": (WHOLE, lambda m, x: m.nn.functional.hardswish(x)),
    "softplus": (WHOLE, lambda m, x: m.nn.functional.softplus(x)),
    "glu": (WHOLE, lambda m, x: m.nn.functional.glu(x)),
    "prelu": (WHOLE, lambda m, x: m.nn.functional.prelu(x, x.select(0, 0).select(0, 0))),
    "hardtanh": (BOOLS, lambda m, x: m.nn.functional.hardtanh(x)),
    "softsign": (BOOLS, lambda m, x: m.nn.functional.softsign(x)),
    "tanhshrink": (BOOLS, lambda m, x: m.nn.functional.tanhshrink(x)),
    "threshold": (BOOLS, lambda m, x: m.nn.functional.threshold(x, 0, 1)),
    "layer_norm": (WHOLE, lambda m, x: m.nn.functional.layer_norm(x, (4,))),
    "group_norm": (WHOLE, lambda m, x: m.nn.functional.group_norm(x, 2)),
    "batch_norm": (WHOLE, lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True)),
    "cross_entropy": (WHOLE, lambda m, x: m.nn.functional.cross_entropy(x, x.select(1, 0).long())),
    "hypot": (WHOLE, lambda m, x: m.hypot(x, x)),
    "logaddexp": (WHOLE, lambda m, x: m.logaddexp(x, x)),
    "nextafter": (WHOLE, lambda m, x: m.nextafter(x, x)),
    "logcumsumexp": (WHOLE, lambda m, x: m.logcumsumexp(x, 1)),
    "lerp": (WHOLE, lambda m, x: m.lerp(x, x, 0.5)),
    "lerp by a tensor": (WHOLE, lambda m, x: m.lerp(x, x, x)),
    "lerp of two dtypes": (WHOLE + ("float64",), lambda m, x: m.lerp(x.to(m.float32), x, 0.5)),
    "lerp by another dtype": (WHOLE + ("float64",), lambda m, x: m.lerp(x, x, x.to(m.float32))),
    "frac": (WHOLE, lambda m, x: m.frac(x)),
    "floor": (BOOLS, lambda m, x: m.floor(x)),
    "round": (BOOLS, lambda m, x: m.round(x)),
    "round to a decimal": (WHOLE, lambda m, x: m.round(x, decimals=1)),
    "clamp by tensors": (BOOLS, lambda m, x: m.clamp(x, x, x)),
    "clamp by bools": (BOOLS, lambda m, x: m.clamp(x, False, True)),
    "topk": (BOOLS, lambda m, x: m.topk(x, 2)),
    "kthvalue": (BOOLS, lambda m, x: m.kthvalue(x, 2)),
    "trace": (BOOLS, lambda m, x: m.trace(x)),
    "addcmul": (BOOLS, lambda m, x: m.addcmul(x, x, x)),
    "searchsorted": (BOOLS, lambda m, x: m.searchsorted(x.select(0, 0), x)),
    "add": (WHOLE, lambda m, x: m.add(x, x, alpha=0.5)),
    "add of a number": (WHOLE[1:], lambda m, x: m.add(x, 2, alpha=0.5)),
    "add in place": (WHOLE, lambda m, x: x.add_(x, alpha=0.5)),
    "add by a bool": (WHOLE[1:] + ("float32",), lambda m, x: m.add(x, x, alpha=True)),
    "add by a complex number": (("float32", "int32"), lambda m, x: m.add(x, x, alpha=1j)),
    "dropout": (WHOLE, lambda m, x: m.nn.functional.dropout(x, 0.5)),
    "rms_norm": (WHOLE, lambda m, x: m.nn.functional.rms_norm(x, (4,))),
    "normalize": (WHOLE, lambda m, x: m.nn.functional.normalize(x)),
    "cosine_similarity": (WHOLE, lambda m, x: m.nn.functional.cosine_similarity(x, x)),
    "polar": (WHOLE, lambda m, x: m.polar(x, x)),
    "kl_div": (WHOLE[1:], lambda m, x: m.nn.functional.kl_div(x, x)),
    "huber_loss": (WHOLE[1:], lambda m, x: m.nn.functional.huber_loss(x, x, reduction="none")),
    "smooth_l1_loss": (WHOLE, lambda m, x: m.nn.functional.smooth_l1_loss(x, x, reduction="sum")),
    "gumbel_softmax": (WHOLE, lambda m, x: m.nn.functional.gumbel_softmax(x)),
    "nanmean": (WHOLE, lambda m, x: m.nanmean(x)),
    "reflection": (BOOLS, lambda m, x: m.nn.functional.pad(x, (1, 1), "reflect")),
    "adaptive_max_pool1d": (WHOLE, lambda m, x: m.nn.functional.adaptive_max_pool1d(x, 2)),
    "adaptive_avg_pool1d": (WHOLE, lambda m, x: m.nn.functional.adaptive_avg_pool1d(x, 1)),
    "avg_pool1d": (WHOLE[:-1], lambda m, x: m.nn.functional.avg_pool1d(x, 2)),
    "max_pool1d": (WHOLE, lambda m, x: m.nn.functional.max_pool1d(x, 2)),
    "max_pool2d": (BOOLS, lambda m, x: m.nn.functional.max_pool2d(x.view((1, 2, 4)), 2)),
    "conv1d": (BOOLS, lambda m, x: m.nn.functional.conv1d(x, x.view((2, 2, 2)))),
    "conv_transpose1d": (WHOLE[:-1], lambda m, x: upwards(m, x)),
    "sub": (WHOLE, lambda m, x: m.sub(x, x, alpha=0.5)),
    "rsub": (WHOLE[1:], lambda m, x: m.rsub(x, x, alpha=0.5)),
}
NOT_ON_FAKES = (  # written in Python for tensors, or no such method
    *("add in place", "cross_entropy", "rms_norm", "normalize", "cosine_similarity", "polar"),
    *("kl_div", "gumbel_softmax"),
)
ACCEPTED = {
    "hypot of two dtypes": (WHOLE, lambda m, x: m.hypot(x, m.ones(2, 4))),
    "softsign": (WHOLE[1:], lambda m, x: m.nn.functional.softsign(x)),
    "floor": (WHOLE[1:], lambda m, x: m.floor(x)),
    "clamp": (WHOLE, lambda m, x: m.clamp(x, 0, 1)),
    "clamp_min": (WHOLE, lambda m, x: m.clamp_min(x, x)),
    "add": (WHOLE[1:], lambda m, x: m.add(x, x, alpha=2)),
    "add of a float": (WHOLE, lambda m, x: m.add(x, 2.5, alpha=0.5)),
    "add by a bool": (BOOLS, lambda m, x: m.add(x, x, alpha=True)),
    "lerp": (("float32", "float64", "float16"), lambda m, x: m.lerp(x, x, 0.25)),
    "max_pool2d": (WHOLE[1:], lambda m, x: m.nn.functional.max_pool2d(-x[None], 2)),
    "max_pool2d, places": (WHOLE[1:], lambda m, x: places(m, x[None])),
    "avg_pool2d": (("int64",), lambda m, x: m.nn.functional.avg_pool2d(x[None] * 7 - 9, (2, 3), 1)),
    "interpolate": (("uint8",), lambda m, x: m.nn.functional.interpolate(x[None] * 9, 7)),
    "addmv": (WHOLE[1:], lambda m, x: m.addmv(x[:, 0], x, x[0], alpha=2.5)),
    "conv1d": (WHOLE[1:], lambda m, x: m.nn.functional.conv1d(x[None] * 17, x[None, :, :3] * 19)),
    "conv2d": (("int64", "int8"), lambda m, x: convolved(m, x * 77)),
    "conv_transpose2d": (("int64",), lambda m, x: transposed(m, x)),
}


def places(m, x):
    return m.nn.functional.max_pool2d(x, 2, return_indices=True)[1]


def convolved(m, x):
    """Groups, stride, padding and a bias."""
    image, kernel = x.reshape(1, 4, 2, 1), x.reshape(4, 2, 1, 1)
    return m.nn.functional.conv2d(image, kernel, x[0], (2, 1), (1, 2), 1, 2)


def transposed(m, x):
    image, kernel = x.reshape(1, 2, 2, 2), x.reshape(2, 1, 2, 2) + 3
    return m.nn.functional.conv_transpose2d(image, kernel, x[0, :2], (2, 3), 1, (0, 1), 2, 2)


def operand(module, dtype):
    return module.tensor([[0, 1, 1, 0], [1, 0, 1, 1]]).to(getattr(module, dtype))


def kind_of(call, *args):
    with pytest.raises(Exception) as told:
        call(*args)
    return told.type, str(told.value)


def compiled(call):
    def whole(x):
        return call(rushlight, x)

    return rushlight.compile(whole)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_dtypes(oracle, name):
    dtypes, call = REFUSED[name]
    for dtype in dtypes:
        expected, _ = kind_of(call, oracle, operand(oracle, dtype))
        x = operand(rushlight, dtype)
        told = [kind_of(call, rushlight, x), kind_of(compiled(call), x)]
        if name not in NOT_ON_FAKES:
            told.append(kind_of(call, rushlight, fake(x)))
        for found, text in told:
            assert issubclass(found, expected), (dtype, found, text)
            assert text.startswith("[") and dtype in text.lower(), text


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_dtypes(oracle, name):
    dtypes, call = ACCEPTED[name]
    for dtype in dtypes:
        expected = call(oracle, operand(oracle, dtype))
        x = operand(rushlight, dtype)
        for found in (call(rushlight, x), compiled(call)(x)):
            assert str(found.dtype) == str(expected.dtype).replace("torch.", "rushlight.")
            assert found.tolist() == expected.tolist(), dtype


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_not_of_what_has_no_bits(oracle, dtype):
    for call in (operator.invert, lambda x: x.__invert__()):
        expected, _ = kind_of(call, operand(oracle, dtype))
        x = operand(rushlight, dtype)
        for found, text in (kind_of(call, x), kind_of(rushlight.compile(call), x)):
            assert found is expected is TypeError
            assert text.startswith("[bitwise_not] ~") and dtype in text
    expected, _ = kind_of(oracle.bitwise_not, operand(oracle, dtype))
    assert kind_of(rushlight.bitwise_not, x)[0] is expected


def test_the_results_of_aminmax_are_named_as_the_oracle_names_them(oracle):
    expected, found = oracle.aminmax(oracle.ones(2)), rushlight.aminmax(rushlight.ones(2))
    assert type(found).__name__ == type(expected).__name__ == "aminmax"
    assert type(pickle.loads(pickle.dumps(found))) is type(found)


def test_a_plan_made_for_a_whole_alpha_does_not_take_a_fraction():
    x = operand(rushlight, "int64")
    assert rushlight.add(x, x, alpha=3).tolist() == (x * 4).tolist()
    with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
        rushlight.add(x, x, alpha=0.5)
