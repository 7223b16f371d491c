"""The examples do what they say: they learn, save, resume and write."""

import pytest

from .programs import example

SMALL = ["--batch", "16", "--context", "64", "--characters", "300000", "--lr", "2e-3"]


@pytest.mark.slow
def test_the_gpt_learns_and_resumes(tmp_path, capsys):
    program = example("train_char_gpt", "rushlight")
    where = ["--checkpoint", str(tmp_path / "gpt.pt")]
    score, entropy = program.main([*SMALL, *where, "--steps", "150", "--sample", "20"])
    assert score < entropy - 0.4  # single characters alone do not get there
    again, _ = program.main([*SMALL, *where, "--steps", "160", "--sample", "0", "--resume"])
    said = capsys.readouterr().out
    assert "10 steps of 16 x 64" in said and again < score + 0.1


@pytest.mark.slow
def test_a_run_in_two_halves_equals_one(tmp_path, capsys):
    program = example("train_char_gpt", "rushlight")
    short = ["--batch", "4", "--context", "32", "--characters", "50000", "--sample", "0"]

    def run(name, *more):
        return program.main([*short, "--checkpoint", str(tmp_path / name), *more])[0]

    make = program.make_optimizer  # one schedule for both, whatever the last step of a run
    program.make_optimizer = lambda model, lr, steps, warmup: make(model, lr, 6, 1)
    whole = run("whole.pt", "--steps", "6")
    run("half.pt", "--steps", "3")
    assert run("half.pt", "--steps", "6", "--resume") == pytest.approx(whole, abs=1e-6)


@pytest.mark.slow
def test_the_network_reads_digits(capsys):
    pytest.importorskip("sklearn")
    example("train_digits_cnn", "rushlight").main([])
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert float(last.rsplit(" ", 1)[1]) > 0.97


@pytest.mark.slow
def test_the_lstm_learns(capsys):
    program = example("lstm_lm", "rushlight")
    losses = program.main(["--steps", "60", "--batch", "16", "--characters", "100000"])
    assert sum(losses[-10:]) / 10 < losses[0] - 1
