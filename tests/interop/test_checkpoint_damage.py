"""Checkpoints that are cut short, corrupt or malicious: a clear error, nothing run, no crash."""

import io
import pickle
import random
import struct
import sys
import zipfile
import zlib

import pytest

import rushlight
from rushlight.interop.archive import CheckpointError, preamble, write
from rushlight.interop.unpickler import Unpickler

REFUSALS = (CheckpointError, pickle.UnpicklingError, RuntimeError)
FLOATS = b"ctorch\nFloatStorage\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def number(n):
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def storage(count=4, key="0", kind=FLOATS):
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + b"tQ"


def tensor(size=(2, 2), stride=(2, 1), offset=0, of=None):
    """The pickle of one tensor."""
    sizes, strides = (b"(" + b"".join(map(number, x)) + b"t" for x in (size, stride))
    return (
        b"\x80\x02" + REBUILD + b"(" + (of or storage()) + number(offset) + sizes + strides
        # requires_grad, hooks
        + b"\x89N" + b"tR."
    )  # fmt: skip


def file_of(data, records=(("data/0", bytes(16)),)):
    file = io.BytesIO()
    write(file, "archive", [*preamble(data), *records])
    file.seek(0)
    return file


def load(data, **records):
    return rushlight.load(file_of(data, **records))


def test_the_pickles_made_here_are_sound():
    assert load(tensor()).tolist() == [[0.0, 0.0], [0.0, 0.0]]


# ---- tensors that leave their storage


@pytest.mark.parametrize(
    "given",
    [
        {"size": (5,), "stride": (1,)},
        {"size": (2, 2), "stride": (3, 1)},
        {"offset": 1},
        {"offset": -1},
        {"offset": 2**62},
        {"size": (2**62,), "stride": (0,)},
        {"size": (2**40, 2**40), "stride": (0, 0)},
        {"size": (2**32, 2**32), "stride": (0, 0)},
        {"size": (2**70, 0), "stride": (0, 1)},
        {"size": (-1,), "stride": (1,)},
        {"size": (2,), "stride": (-1,), "offset": 1},
        {"size": (2,), "stride": (2**63,)},
        {"size": (2, 2), "stride": (1,)},
        {"size": (1,) * 70, "stride": (1,) * 70},
    ],
    ids=str,
)
def test_tensors_stay_in_their_storage(given):
    with pytest.raises(RuntimeError, match=r"\[") as caught:
        load(tensor(**given))
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "of, what",
    [
        (storage(count=5), "5 elements of float32, its record 16 bytes"),
        (storage(count=2**60), "its record 16 bytes"),
        (storage(count=-4), "its record 16 bytes"),
        (storage(key="1"), "no record 'data/1'"),
        (storage(key="../../etc/passwd"), "no record"),
        (storage(kind=b"ctorch\nDoubleStorage\n"), "4 elements of float64"),
        (storage(kind=b"ctorch\nQInt8Storage\n"), "QInt8Storage"),
        (storage(kind=b"ccollections\nOrderedDict\n"), "a storage of type"),
        (b"(" + text("module") + b"tQ", "persistent id"),
        (b"NQ", "persistent id"),
    ],
    ids=[str(i) for i in range(10)],
)
def test_storages_are_what_their_records_are(of, what):
    with pytest.raises(REFUSALS, match=what):
        load(tensor(of=of))


def test_one_storage_has_one_size():
    both = b"\x80\x02(" + storage() + storage(count=2) + b"t."
    with pytest.raises(CheckpointError, match="two sizes"):
        load(both)


# ---- pickles that want to run


class Run:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "attack",
    [
        Run(exec, "import sys; sys.modules['pwned'] = sys"),
        Run(eval, "__import__('sys').modules.__setitem__('pwned', 1)"),
        Run(__import__("os").system, "touch pwned"),
        Run(getattr, "text", "join"),
        Run(__import__("importlib").import_module, "this"),
        Run(__import__("operator").attrgetter, "x"),
        Run(zipfile.ZipFile, "x"),
    ],
    ids=lambda attack: attack.call[0].__name__,
)
def test_nothing_is_run(attack, protocol):
    data = pickle.dumps({"x": attack}, protocol)
    with pytest.raises(pickle.UnpicklingError, match="names|opcode|called"):
        load(data)
    assert "pwned" not in sys.modules and "this" not in sys.modules


@pytest.mark.parametrize(
    "body, what",
    [
        # calls of what is named for another purpose
        (b"ctorch\nFloatStorage\n)R.", "call of torch.FloatStorage"),
        (b"ctorch\nTensor\n)R.", "call of torch.Tensor"),
        (b"c__builtin__\nlist\n)R.", "call of list"),
        (b"cbuiltins\nint\n(" + text("9" * 10) + b"tR.", "call of int"),
        (b"ccollections\nOrderedDict\n)\x81.", "object of OrderedDict"),
        (b"ctorch\nTensor\n)}\x92.", "object of torch.Tensor"),
        (b"K\x01)R.", "call of int"),
        # states for what must not change
        (REBUILD + b"}" + text("x") + b"K\x01sb.", "state for torch._utils"),
        (b"ctorch.nn.parameter\nParameter\n}" + text("__init__") + b"Nsb.", "state for"),
        (b"ctorch\nfloat32\n}" + text("x") + b"Nsb.", "state for"),
        (b"]}" + text("append") + b"Nsb.", "state for list"),
        (b"ccollections\nOrderedDict\n)RN}" + text("x") + b"Ns\x86b.", "state for OrderedDict"),
        # arguments of the wrong kind
        (b"ccollections\ndefaultdict\n(" + REBUILD + b"tR.", "defaultdict"),
        (b"cbuiltins\nbytearray\n(" + number(2**40) + b"tR.", "bytearray"),
        (b"c_codecs\nencode\n(" + text("a") + text("rot13") + b"tR.", "encode"),
        (b"ctorch\nSize\n((" + text("a") + b"ttR.", "Size"),
        (b"ctorch\ndevice\n(K\x01tR.", "device"),
        (b"ctorch._utils\n_rebuild_parameter\n(K\x01\x88NtR.", "_rebuild_parameter"),
        (b"ctorch._tensor\n_rebuild_from_type_v2\n(c_codecs\nencode\nNNNtR.", "_rebuild_from"),
        (b"cnumpy\ndtype\n(" + text("O") + b"tR.", "numbers and text"),
        (b"cnumpy.core.multiarray\nscalar\n(NNtR.", "numpy scalar"),
        # opcodes that data has no need of
        (b"(" + text("x") + b"ios\nsystem\n.", "opcode b'i'"),
        (b"(cos\nsystem\no.", "names os.system"),
        (b"\x82\x01.", "opcode"),
        (b"\x97.", "opcode"),
        (b"Pabc\n.", "opcode"),
        # what is not there
        (b"h\x05.", "corrupt"),
        (b"R.", "corrupt"),
        (b"t.", "corrupt"),
        (b".", "corrupt"),
        (b"K\x01", "STOP"),
        (b"X\xff\xff\xff\x7fab.", "truncated"),
        (b"\x8d" + b"\xff" * 8 + b".", "truncated"),
        (b"\x96" + b"\x00" * 7 + b"\x7f.", "truncated"),
        (b"\x80\x09.", "protocol"),
        (b"I" + b"9" * 10_000 + b"\n.", "corrupt"),
        (b"}]K\x01s.", "unhashable"),
    ],
    ids=lambda x: str(x)[:40] if isinstance(x, bytes) else None,
)
def test_pickles_that_are_no_data(body, what):
    with pytest.raises(REFUSALS, match=what):
        load(b"\x80\x02" + body)
    assert rushlight.float32.name == "float32"


def test_keys_hash_in_bounded_time_and_stack():
    """Nested tuples are hashed by recursion: a million deep, or doubled sixty times."""
    deep = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
    doubled = b"\x80\x02})" + b"2\x86" * 60 + b"Ns."
    for data in (deep, doubled):
        with pytest.raises(pickle.UnpicklingError, match="nested too deep"):
            load(data)
    assert load(b"\x80\x02}K\x01K\x02\x86K\x03\x86Ns.") == {((1, 2), 3): None}


def test_deep_nesting_is_no_crash():
    out = load(b"\x80\x02)" + b"\x85" * 200_000 + b".")
    for _ in range(100_000):
        (out,) = out


def test_memory_stays_in_proportion_to_the_bytes():
    """A large string copied again and again by a few bytes each; a memo of giant numbers."""
    big = text("a" * 100_000) + b"q\x00"
    again = b"c_codecs\nencode\n(h\x00" + text("latin1") + b"tR"
    with pytest.raises(pickle.UnpicklingError, match="over and over"):
        load(b"\x80\x02(" + big + again * 2000 + b"t.")
    assert load(b"\x80\x02K\x01r\xff\xff\xff\xffj\xff\xff\xff\xff.") == 1


# ---- containers


def valid():
    file = io.BytesIO()
    rushlight.save({"w": rushlight.arange(6).float().view(2, 3), "n": [1, "two"]}, file)
    return file.getvalue()


def test_truncated_files(tmp_path):
    data, path = valid(), tmp_path / "x.pt"
    for cut in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:cut])
        for mmap in (False, True):
            with pytest.raises(REFUSALS, match=r"x\.pt"):
                rushlight.load(path, mmap=mmap)


def test_flipped_bits_are_found_or_harmless():
    """Every byte of the file, one at a time."""
    data = valid()
    expected = str(rushlight.load(io.BytesIO(data)))
    found = 0
    for i in range(len(data)):
        broken = bytearray(data)
        broken[i] ^= 0x41
        try:
            assert str(rushlight.load(io.BytesIO(broken))) == expected, f"byte {i}"
        except REFUSALS:
            found += 1
    assert found > 300


@pytest.mark.parametrize("seed", range(8))
def test_scrambled_pickles_end_in_a_value_or_an_error(seed):
    """With right checksums, so that only the machine stands in between."""
    rng = random.Random(seed)
    with zipfile.ZipFile(io.BytesIO(valid())) as file:
        data = file.read("archive/data.pkl")
        weights = file.read("archive/data/0")
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(broken))
            what = rng.randrange(3)
            if what == 0:
                broken[at] = rng.randrange(256)
            elif what == 1:
                del broken[at : at + rng.randint(1, 4)]
            else:
                broken[at:at] = rng.randbytes(rng.randint(1, 4))
        try:
            load(bytes(broken), records=[("data/0", weights)])
        except REFUSALS:
            pass


def zip_by_hand(entries, tail=b"", method=0):
    """(name, where its header stands or None, bytes, sizes that its directory gives)."""
    body, central = b"", b""
    for name, place, data, size in entries:
        at = len(body) if place is None else place
        crc = zlib.crc32(data)
        head = struct.pack("<HHHHHIIIHH", 0, 0, method, 0, 0, crc, size, size, len(name), 0)
        if place is None:
            body += b"PK\x03\x04" + head + name + data
        central += (
            b"PK\x01\x02"
            + struct.pack("<H", 0)
            + head
            + struct.pack("<HHHII", 0, 0, 0, 0, at)
            + name
        )
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(central), len(body), 0)
    return io.BytesIO(body + central + b"PK\x05\x06" + end + tail)


PKL = tensor()


@pytest.mark.parametrize(
    "entries, what",
    [
        ([(b"a/../b", None, b"x", 1)], "malicious"),
        ([(b"/etc/passwd", None, b"x", 1)], "malicious"),
        ([(b"a\\b", None, b"x", 1)], "malicious"),
        ([(b"a/\xff", None, b"x", 1)], "named"),
        ([(b"a/x", None, b"x", 1), (b"a/x", None, b"y", 1)], "twice"),
        ([(b"a/x", None, b"x", 1), (b"b/y", None, b"y", 1)], "2 folders"),
        ([(b"a/x", None, b"x", 1), (b"a/y", 0, b"x", 1)], "another name"),
        ([(b"a/x", None, b"x" * 100, 2**31)], "not where"),
        ([(b"a/x", 10**6, b"x", 1)], "beyond"),
        ([(b"a/x", None, b"x", 1)], "no record 'data.pkl'"),
        ([], "empty"),
    ],
    ids=[str(i) for i in range(11)],
)
def test_malicious_containers(entries, what):
    with pytest.raises(CheckpointError, match=what):
        rushlight.load(zip_by_hand(entries))


def test_overlapping_records():
    """Two storages of one place in the file: a record inside another one's bytes."""
    inner = b"PK\x03\x04" + struct.pack(
        "<HHHHHIIIHH", 0, 0, 0, 0, 0, zlib.crc32(b"abc"), 3, 3, 8, 0
    )
    inner += b"a/data/1abc"
    outer = [(b"a/data/0", None, inner, len(inner)), (b"a/data.pkl", None, PKL, len(PKL))]
    file = zip_by_hand([*outer, (b"a/data/1", 30 + 8, b"abc", 3)])
    with pytest.raises(CheckpointError, match="overlap"):
        rushlight.load(file)


def test_zip_bombs():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", PKL)
        archive.writestr("a/data/0", bytes(10_000_000))
    file.seek(0)
    with pytest.raises(CheckpointError, match="compressed"):
        rushlight.load(file)


def test_other_files(tmp_path):
    path = tmp_path / "x.pt"
    for content, what in (
        (b"", "no checkpoint"),
        (b"hello", "no checkpoint"),
        (pickle.dumps([1], 2), "bare pickle"),
        (b"PK", "truncated"),
        (b"PK\x05\x06" + bytes(18), "empty"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=what):
            rushlight.load(path)


def test_the_machine_reads_what_pickle_writes():
    """Plain data in every protocol, against Python's own machine."""
    x = [1, -1, 2**40, -(2**100), 1.5, "é", b"\0\xff", None, True, (), (1,), (1, 2, 3, 4), {1, 2}]
    x += [{"a": [x[0]]}, [[]], bytearray(b"ab"), frozenset([3]), 1j, float("inf"), "\ud800"]
    x.append(x[13])
    for protocol in range(2, 6):
        data = pickle.dumps(x, protocol)
        out = Unpickler(data, find_plain, None, lambda *_: False).load()
        assert out == x and out[20] is out[13]


def find_plain(module, name):
    from rushlight.interop.checkpoint import find

    return find(module, name)
