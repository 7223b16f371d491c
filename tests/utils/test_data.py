"""Data sets, samplers and collating, against PyTorch's and by themselves."""

import collections
import itertools

import pytest

import rushlight
from rushlight.utils import data

Point = collections.namedtuple("Point", "x y")


class Numbers(data.Dataset):
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.start + i


class Count(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.n


# ---- data sets


def test_tensor_dataset():
    x, y = rushlight.arange(6).view(3, 2), rushlight.arange(3)
    d = data.TensorDataset(x, y)
    assert len(d) == 3 and [t.tolist() for t in d[1]] == [[2, 3], 1]
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(x, rushlight.arange(4))


def test_concatenation():
    d = Numbers(3) + Numbers(2, 10)
    assert isinstance(d, data.ConcatDataset)
    assert [d[i] for i in range(5)] == [0, 1, 2, 10, 11] and d[-1] == 11 and d[-5] == 0
    with pytest.raises(ValueError, match="absolute value"):
        d[-6]
    with pytest.raises(AssertionError, match="empty"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="IterableDataset"):
        data.ConcatDataset([Count(1)])
    chain = Count(2) + Count(1)
    assert list(chain) == [0, 1, 0] and len(chain) == 3
    with pytest.raises(AssertionError, match="only supports"):
        list(data.ChainDataset([Numbers(1)]))


def test_stacking():
    d = data.StackDataset(Numbers(3), Numbers(3, 5))
    assert d[1] == (1, 6) and len(d) == 3 and d.__getitems__([0, 2]) == [(0, 5), (2, 7)]
    d = data.StackDataset(a=Numbers(2), b=data.Subset(Numbers(9), [4, 7]))
    assert d[1] == {"a": 1, "b": 7} and d.__getitems__([0]) == [{"a": 0, "b": 4}]
    for args, kwargs in (
        ((), {}),
        ((Numbers(1),), {"a": Numbers(1)}),
        ((Numbers(1), Numbers(2)), {}),
    ):
        with pytest.raises(ValueError):
            data.StackDataset(*args, **kwargs)


def test_what_is_not_written_is_told():
    with pytest.raises(NotImplementedError):
        data.Dataset()[0]
    with pytest.raises(NotImplementedError):
        iter(data.IterableDataset())
    assert data.Dataset[int] is not None  # for annotations


@pytest.mark.parametrize("lengths", [[3, 7], [0.25, 0.75], [1 / 3, 1 / 3, 1 / 3], [0, 10]])
def test_random_split(oracle, lengths):
    generator = rushlight.Generator().manual_seed(1)
    parts = data.random_split(Numbers(10), lengths, generator)
    theirs = oracle.utils.data.random_split(range(10), lengths)
    assert [len(p) for p in parts] == [len(p) for p in theirs]
    assert sorted(x for p in parts for x in (p[i] for i in range(len(p)))) == list(range(10))
    again = data.random_split(Numbers(10), lengths, rushlight.Generator().manual_seed(1))
    assert [p.indices for p in parts] == [p.indices for p in again]


def test_random_split_refusals():
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(Numbers(10), [3, 3])
    with pytest.raises(ValueError, match="not between 0 and 1"):
        data.random_split(Numbers(10), [1.5, -0.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(Numbers(2), [0.9, 0.1])


# ---- samplers


def test_sequential_and_batch_samplers(oracle):
    theirs = oracle.utils.data
    for n, size, drop in itertools.product((0, 1, 5, 6), (1, 2, 3), (False, True)):
        ours = data.BatchSampler(data.SequentialSampler(range(n)), size, drop)
        other = theirs.BatchSampler(theirs.SequentialSampler(range(n)), size, drop)
        assert list(ours) == list(other) and len(ours) == len(other)
    for size, drop in ((0, False), (-1, False), (2.0, False), (True, False)):
        with pytest.raises(ValueError, match="batch_size"):
            data.BatchSampler([], size, drop)


@pytest.mark.parametrize("count", [None, 3, 10, 25])
@pytest.mark.parametrize("replacement", [False, True])
def test_random_sampler(replacement, count):
    make = lambda: data.RandomSampler(range(10), replacement, count)
    rushlight.manual_seed(3)
    first = list(make())
    assert list(make()) != first or count == 3  # every pass has its own order
    rushlight.manual_seed(3)
    assert list(make()) == first and len(make()) == len(first) == (count or 10)
    assert set(first) <= set(range(10))
    if not replacement:
        for start in range(0, len(first), 10):
            part = first[start : start + 10]
            assert len(set(part)) == len(part)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 9])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler(oracle, count, drop_last):
    for rank in range(3):
        if count == 0 and not drop_last:
            continue  # the oracle divides by zero
        ours, theirs = (
            module.DistributedSampler(range(count), 3, rank, shuffle=False, drop_last=drop_last)
            for module in (data, oracle.utils.data)
        )
        assert list(ours) == list(theirs) and len(ours) == len(theirs)


def test_distributed_sampler_shuffles_by_epoch():
    samplers = [data.DistributedSampler(range(20), 2, rank, seed=5) for rank in (0, 1)]
    orders = []
    for epoch in (0, 1, 0):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        shares = [list(sampler) for sampler in samplers]
        assert sorted(shares[0] + shares[1]) == list(range(20))
        orders.append(shares)
    assert orders[0] == orders[2] != orders[1]
    with pytest.raises(ValueError, match="rank 2 is out of range: 0 to 1"):
        data.DistributedSampler(range(4), 2, 2)
    with pytest.raises(RuntimeError, match="num_replicas and rank"):
        data.DistributedSampler(range(4))


def test_random_samplers_are_even():
    generator = rushlight.Generator().manual_seed(0)
    for sampler in (
        data.RandomSampler(range(5), True, 5000, generator),
        data.RandomSampler(range(5), False, 5000, generator),
        data.WeightedRandomSampler([2.0] * 5, 5000, generator=generator),
    ):
        counts = collections.Counter(sampler)
        assert all(850 < counts[i] < 1150 for i in range(5)), counts


def test_weighted_sampler():
    generator = rushlight.Generator().manual_seed(0)
    counts = collections.Counter(
        data.WeightedRandomSampler([0, 1.0, 3.0], 4000, generator=generator)
    )
    assert counts[0] == 0 and 2800 < counts[2] < 3200
    firsts = collections.Counter(
        next(iter(data.WeightedRandomSampler([1.0, 3.0], 2, False, generator))) for _ in range(1000)
    )
    assert 680 < firsts[1] < 820
    drawn = list(data.WeightedRandomSampler([1.0, 0.0, 5.0], 2, False, generator))
    assert sorted(drawn) == [0, 2]
    for weights, n, replacement in (([1.0, 0.0], 2, False), ([0.0], 1, True), ([-1.0], 1, True)):
        with pytest.raises(RuntimeError):
            list(data.WeightedRandomSampler(weights, n, replacement))
    with pytest.raises(ValueError, match="are a vector"):
        data.WeightedRandomSampler([[1.0]], 1)


def test_subset_sampler():
    sampler = data.SubsetRandomSampler([7, 8, 9], rushlight.Generator().manual_seed(0))
    assert sorted(sampler) == [7, 8, 9] and len(sampler) == 3


# ---- collating


def samples(library):
    t = library.tensor
    yield [1, 2, 3]
    yield [1.5, 2]
    yield [True, False]
    yield ["a", "b"]
    yield [b"a", b"b"]
    yield [t([1, 2]), t([3, 4])]
    yield [(1, t([1.0])), (2, t([2.0]))]
    yield [[1, 2], [3, 4]]
    yield [{"a": 1, "b": [t([1])]}, {"a": 2, "b": [t([2])]}]
    yield [collections.OrderedDict(a=1), collections.OrderedDict(a=2)]
    yield [Point(1, "x"), Point(2, "y")]
    yield [((), []), ((), [])]


def numpy_samples():
    import numpy

    yield [numpy.float32(1), numpy.float32(2)]
    yield [numpy.int64(1), numpy.int64(2)]
    yield [numpy.arange(3), numpy.arange(3)]
    yield [{"a": numpy.ones((2, 2), numpy.float16)}] * 2
    yield [numpy.array(1.5), numpy.array(2.5)]


def words(x):
    """Values of either library in the same words."""
    if hasattr(x, "tolist") and hasattr(x, "stride"):
        return str(x.dtype).split(".")[1], tuple(x.shape), x.tolist()
    if isinstance(x, dict):
        return type(x).__name__, {k: words(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [words(v) for v in x]
    return x


@pytest.mark.parametrize("function", ["default_collate", "default_convert"])
def test_collating_as_the_oracle(oracle, function):
    ours, theirs = getattr(data, function), getattr(oracle.utils.data, function)
    pairs = [*zip(samples(rushlight), samples(oracle)), *((x, x) for x in numpy_samples())]
    for a, b in pairs:
        assert words(ours(a)) == words(theirs(b)), a


def test_collating_refusals():
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])
    for batch in ([None, None], [object()], [{1, 2}]):
        with pytest.raises(TypeError, match="batches are made of"):
            data.default_collate(batch)
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="found <U1"):
        data.default_collate([numpy.array("a")])
    with pytest.raises(RuntimeError):
        data.default_collate([rushlight.ones(2), rushlight.ones(3)])


def test_collating_ones_own_types():
    table = {**data.default_collate_fn_map, Numbers: lambda b, *, collate_fn_map: len(b)}
    out = data.collate([(Numbers(1), 1), (Numbers(2), 2)], collate_fn_map=table)
    assert out[0] == 2 and out[1].tolist() == [1, 2]
