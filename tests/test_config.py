"""config and errors: settings from the environment; three kinds of error that name the user's
line."""

import copy
import pickle
import re
from pathlib import Path

import pytest

from rushlight import config, errors


def test_read_takes_types_from_the_defaults():
    flags = config.read(
        {"RUSHLIGHT_LOGS": " plans ", "RUSHLIGHT_COMPILE_DEBUG": "1", "RUSHLIGHT_STRICT": "off"}
    )
    assert (flags.logs, flags.compile_debug, flags.strict) == ("plans", True, False)
    assert config.read({}).debug_dir == "rushlight_debug"
    with pytest.raises(ValueError, match="RUSHLIGHT_STRICT: expected 1 or 0 .* got 'maybe'"):
        config.read({"RUSHLIGHT_STRICT": "maybe"})


def test_the_page_of_settings_lists_what_the_code_reads():
    from rushlight.runtime.cuda import libraries

    root = Path(__file__).resolve().parents[1]
    sources = [*root.glob("rushlight/**/*.py"), *root.glob("csrc/*/*.cpp"), root / "pyproject.toml"]
    sources += [root / "CMakeLists.txt", root / "tests" / "conftest.py"]
    read = {f"RUSHLIGHT_{name.upper()}" for name in (*libraries.NAMES, "cupti")}
    for source in sources:
        if not source.name.startswith("test_"):
            text = source.read_text(encoding="utf-8")
            read |= set(re.findall(r'(?:"|env\.|ENV\{)(RUSHLIGHT_[A-Z]+(?:_[A-Z]+)*)\b(?!_)', text))
    page = (root / "docs" / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(RUSHLIGHT_\w+)`", page)) == read


def test_every_flag_is_described():
    text = config.describe()
    names = [setting.name for setting in config.SETTINGS]
    assert names == list(config.Flags.__slots__) == list(config.Flags.__annotations__)
    for setting in config.SETTINGS:
        assert setting.env.startswith("RUSHLIGHT_")
        assert setting.doc.endswith(".")
        assert setting.env in text and setting.name in text
        assert config.Flags.__annotations__[setting.name] == type(setting.default).__name__


def test_changed_restores():
    before = config.flags.logs
    with pytest.raises(ZeroDivisionError), config.changed(logs="x"):
        assert config.flags.logs == "x"
        raise ZeroDivisionError
    assert config.flags.logs == before
    with pytest.raises(AttributeError), config.changed(no_such_flag=1):
        pass


def test_code_key_has_what_changes_code():
    with config.changed(isa="avx2"):
        assert ("isa", "avx2") in config.code_key()
    assert "logs" not in dict(config.code_key())


@pytest.mark.parametrize(
    "kind", [RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError]
)
def test_user_error_is_of_pytorchs_kind(kind):
    error = errors.UserError("matmul", "got 3 and 4", kind=kind)
    assert isinstance(error, kind) and isinstance(error, errors.UserError)
    assert str(error) == "[matmul] got 3 and 4"
    for other in (RuntimeError, IndexError, TypeError):
        assert isinstance(error, other) == issubclass(kind, other)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == str(error)


def test_errors_name_the_users_line():
    first = test_errors_name_the_users_line.__code__.co_firstlineno + 3
    made = (
        errors.UserError("add", "x"),
        errors.Unsupported("eig", "x", "do y"),
        errors.CompilerBug("s", "x"),
    )
    for line, error in enumerate(made, first):
        assert error.where.file == __file__ and error.where.line == line
        assert error.__notes__ == [f"at {error.where}"]
    assert (
        str(errors.Unsupported("eig", "no complex", "Use eigh.")) == "[eig] no complex. Use eigh."
    )


def test_compiler_bug_quotes_the_ir():
    ir = "\n".join(f"n{i} = add(n{i - 1}, 1)" for i in range(20))
    text = str(errors.CompilerBug("fusion", "n9 has no value", errors.near(ir, "n9 =", lines=1)))
    assert text.splitlines() == [
        "[fusion] n9 has no value",
        "    n8 = add(n7, 1)",
        "    n9 = add(n8, 1)      <- here",
        "    n10 = add(n9, 1)",
    ]
    assert isinstance(
        pickle.loads(pickle.dumps(errors.CompilerBug("a", "b", "c"))), errors.CompilerBug
    )


def test_each_class_documents_a_failing_example_and_its_mend():
    for cls in (errors.UserError, errors.Unsupported, errors.CompilerBug):
        assert "Fails:" in cls.__doc__ and "Mend:" in cls.__doc__
