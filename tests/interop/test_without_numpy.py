"""numpy is an extra: without it everything but the exchange of arrays works."""

import subprocess
import sys
import textwrap

PROGRAM = """
    import sys
    sys.modules["numpy"] = None          # as if it were not installed
    import rushlight as torch
    from rushlight import nn

    x = torch.randn(3, 4)
    assert "tensor(" in repr(x)
    try:
        x.numpy()
    except RuntimeError as error:
        assert "Numpy is not available" in str(error)
    else:
        raise AssertionError("an array without numpy")
    w = nn.init.orthogonal_(torch.empty(3, 5))
    assert (w @ w.t() - torch.eye(3)).abs().max() < 1e-6
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 2))
    loss = nn.functional.cross_entropy(model(torch.randn(4, 1, 6, 6)), torch.tensor([0, 1, 0, 1]))
    loss.backward()
    torch.save(model.state_dict(), sys.argv[1])
    model.load_state_dict(torch.load(sys.argv[1]))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=2)
    assert [len(b[0]) for b in data] == [2, 1]
    assert torch.compile(lambda v: torch.relu(v) * 2)(x).shape == x.shape
    assert x[[0, 2]].tolist() == [x[0].tolist(), x[2].tolist()]
    print("done")
"""


def test_a_program_without_numpy(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "model.pt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr
