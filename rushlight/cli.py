"""The command line: `rushlight explain`, `bisect`, `run`, `info`, `ops`, `cache` and `prebuild`.

Takes arguments; returns the exit code: that of the script for `explain` and `run`, 2 for a wrong
argument.
Invariant: nothing is imported for a command that it does not need.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

_USAGE = """rushlight explain [SCRIPT [ARGS]] [-o PAGE.html] [--open] [--mode MODE] [--all]
       [--device DEVICE] [--kernel NAME] [--op NAME] [--json FILE] [--rows N] [-q]
       rushlight explain --torch SCRIPT [ARGS] [-o PAGE.html] [--open] [--mode eager]
       [--device DEVICE] [--json FILE] [--rows N] [-q]"""
_EXPLAIN = """
Runs SCRIPT as `python SCRIPT ARGS` would, with recording on, and then shows the path that it took:
stage by stage, with operators, kernels, times. The script's own output goes through, and its exit
code is kept. `-o` writes it as a page that holds everything, linked line by line. Without SCRIPT,
the page shows what is documented of the four paths.

With `--torch`, SCRIPT is a PyTorch program: it runs with torch as it is, and the report shows what
torch did, stage by stage, in the same form.

Options of explain may stand before or after SCRIPT, `--torch` before it. What else follows SCRIPT
goes to the script, and so does everything after `--`.
"""

_BISECT = """
Runs SCRIPT in eager mode, then with its graphs captured and looked into stage by stage, then
compiled, each in a process of its own. Names the stage, and the pass or operator, whose answer
differs, and writes a Python file that shows it. The exit code is 0 where nothing is wrong, 1 where
a stage is, 2 where it cannot be said.
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    script: list[str] = []
    if words[:1] in (["explain"], ["run"], ["bisect"]):
        words, script = split_script(words)
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help()
        return 2
    if options.command == "explain":
        if not script:
            return _reference(options)
        explain = _explain_torch if options.torch else _explain
        return explain(options, script[0], script[1:])
    if options.command == "run":
        return _run(options, script)
    if options.command == "bisect":
        return _bisect(options, script)
    return int(options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rushlight", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    explain = commands.add_parser(
        "explain",
        help="run a script and show the path it took",
        description=_EXPLAIN,
        usage=_USAGE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("--kernel", metavar="NAME", help="print the generated C++ of this kernel")
    explain.add_argument("--op", metavar="NAME", help="show this operator's way down in full")
    explain.add_argument("--json", metavar="FILE", help="write the observed path; '-': stdout")
    explain.add_argument("-o", "--output", metavar="PAGE.html", help="write the page")
    explain.add_argument("--open", action="store_true", help="show the page in a browser")
    explain.add_argument(
        "--mode", choices=("eager", "compile"), default="", help="run it in this mode"
    )
    explain.add_argument(
        "--all", action="store_true", help="run it once more in the mode it did not take"
    )
    explain.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        type=lambda name: "gpu" if name == "cuda" else name,
        default="",
        help="shown first (cuda: gpu)",
    )
    explain.add_argument(
        "--torch", action="store_true", help="observe a PyTorch program, run by torch itself"
    )
    explain.add_argument("--rows", metavar="N", type=int, default=12, help="rows a table (12)")
    explain.add_argument("-q", "--quiet", action="store_true", help="no report")
    run = commands.add_parser(
        "run",
        help="run a script written for PyTorch: `import torch` means Rushlight",
        usage="rushlight run {SCRIPT | -m MODULE} [ARGS] [--report FILE]",
        allow_abbrev=False,
    )
    run.add_argument("--report", metavar="FILE", help="write the names that are missing, as JSON")
    bisect = commands.add_parser(
        "bisect",
        help="find the stage that makes a script's compiled answers wrong",
        description=_BISECT,
        usage="rushlight bisect SCRIPT [ARGS] [-o FILE] [--mode compile] [--calls N]",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bisect.add_argument("-o", "--output", metavar="FILE", help="the reproduction (bisect_NAME.py)")
    bisect.add_argument("--mode", choices=("compile",), default="", help="compile its modules")
    bisect.add_argument(
        "--calls", metavar="N", type=int, default=3, help="calls of a graph looked into (3)"
    )
    info = commands.add_parser("info", help="versions, kernels, libraries, cache, settings")
    info.set_defaults(run=_info)
    cache = commands.add_parser("cache", help="compiled artifacts on disk: info, or clear")
    cache.add_argument("what", choices=("info", "clear"))
    cache.set_defaults(run=_cache)
    prebuild = commands.add_parser(
        "prebuild",
        help="compile the kernel library for GPUs (needs triton, no GPU)",
        description="Writes kernels_smNN.pack: every eager kernel's machine code for one "
        "architecture, so that eager mode on a GPU invokes no compiler. Put the folder in "
        "RUSHLIGHT_CUDA_KERNELS, or leave it beside the package's libraries.",
    )
    prebuild.add_argument(
        "--cuda",
        metavar="ARCH",
        action="append",
        required=True,
        help="80 or 90, also as sm_80; again for another",
    )
    prebuild.add_argument("--out", metavar="DIR", help="folder of the packs (the package's lib)")
    prebuild.add_argument("--only", metavar="REGEX", default="", help="only keys that match")
    prebuild.add_argument("--jobs", metavar="N", type=int, help="processes (as many as cores)")
    prebuild.set_defaults(run=_prebuild)
    ops = commands.add_parser("ops", help="list the operators: kind, derivative, place, schema")
    ops.add_argument("pattern", nargs="?", default="", help="only names that contain this")
    ops.set_defaults(run=_ops)
    return parser


# Which words are ours, with a value or alone. What a command does not know is the script's;
# `--torch` is ours before the script, as every word there.
_WITH_VALUE = {
    "explain": ("--kernel", "--op", "--json", "--rows", "-o", "--output", "--mode", "--device"),
    "run": ("--report",),
    "bisect": ("-o", "--output", "--mode", "--calls"),
}
_ALONE = {
    "explain": ("-q", "--quiet", "-h", "--help", "--open", "--all"),
    "run": (),
    "bisect": ("-h", "--help"),
}


def split_script(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """['explain', ours..., SCRIPT, args...] -> (['explain', ours...], [SCRIPT, args...])."""
    ours, script = [words[0]], list[str]()
    with_value, alone = _WITH_VALUE[words[0]], _ALONE[words[0]]
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            script += rest
        elif word in alone or word.startswith(tuple(f"{name}=" for name in with_value)):
            ours.append(word)
        elif word in with_value:
            value = next(rest, None)
            ours += [word] if value is None else [word, value]
        elif script or not word.startswith("-") or (words[0], word) == ("run", "-m"):
            script.append(word)
        else:
            ours.append(word)  # unknown, before the script: argparse says so
    return ours, script


def _prebuild(options: argparse.Namespace) -> int:
    from rushlight import _core
    from rushlight.eager.prebuild import prebuild
    from rushlight.errors import Unsupported

    folder = options.out or os.path.join(os.path.dirname(_core.__file__), "lib")
    targets = [word.removeprefix("sm_") for word in options.cuda]
    for target in targets:
        if target not in ("80", "90"):
            print(f"rushlight prebuild: --cuda takes 80 or 90, not {target!r}", file=sys.stderr)
            return 2
    for target in map(int, targets):
        try:
            made = prebuild(target, folder, options.only, options.jobs, _progress)
        except (Unsupported, OSError) as error:
            print(f"rushlight prebuild: {error}", file=sys.stderr)
            return 1
        left = f", {len(made.refused)} left to the host" if made.refused else ""
        print(
            f"{made.path}: {made.kernels} kernels in {made.images} images{left}; "
            f"{made.bytes / 1e6:.1f} MB, {made.seconds:.0f} s"
        )
    return 0


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty() or done == of or done % 100 == 0:
        end = "\n" if done == of or not sys.stderr.isatty() else "\r"
        print(f"{done} of {of} kernels", end=end, file=sys.stderr, flush=True)


def _explain(options: argparse.Namespace, script: str, args: list[str]) -> int:
    if not os.path.isfile(script):
        print(f"rushlight explain: no such script: {script}", file=sys.stderr)
        return 2
    from rushlight import scripts
    from rushlight.machine import machine

    # stdout is for the JSON alone, if it is asked for; what the script prints goes to stderr
    aside = contextlib.redirect_stdout(sys.stderr)
    with aside if options.json == "-" else contextlib.nullcontext():
        gpu_too = options.device == "gpu" and not machine()["gpu"]
        recording, code = scripts.run_script(script, args, options.mode, gpu_too)
        try:
            explanation = recording.explanation(options.op)
        except KeyError:
            called = sorted({call.operator for call in recording.explanation().calls})
            print(_unknown("operator", options.op, called), file=sys.stderr)
            return code or 2
        if options.all:
            _run_other(explanation, script, args)
    command = shlex.join(["rushlight", "explain", script, *args])
    asked = options.kernel or options.op
    if options.json:
        code = _write_json(explanation.to_json(), options.json) or code
    if options.output or options.open:
        page = explanation.page(options.mode, options.device)
        code = _write_page(page, options.output, options.open) or code
    if options.kernel:
        code = code or _show_kernel(explanation, options.kernel)
    if options.op:
        _show_operator(explanation)
    if not asked and not options.quiet and options.json != "-":
        print()
        explanation.print(command=command, rows=options.rows)
    return code


def _explain_torch(options: argparse.Namespace, script: str, args: list[str]) -> int:
    """A PyTorch program, run by torch and observed."""
    if not os.path.isfile(script):
        print(f"rushlight explain: no such script: {script}", file=sys.stderr)
        return 2
    asked = {"--kernel": options.kernel, "--op": options.op, "--all": options.all}
    wrong = [name for name, value in asked.items() if value]
    wrong += ["--mode compile"] if options.mode == "compile" else []
    if wrong:
        said = f"--torch observes the program as it is, so {wrong[0]} is not for it"
        print(f"rushlight explain: {said}", file=sys.stderr)
        return 2
    from rushlight import scripts
    from rushlight.errors import Unsupported
    from rushlight.observation import TorchExplanation

    aside = contextlib.redirect_stdout(sys.stderr)
    with aside if options.json == "-" else contextlib.nullcontext():
        try:
            recording, code = scripts.run_torch_script(script, args, options.mode)
        except Unsupported as error:
            print(f"rushlight explain: {error}", file=sys.stderr)
            return 2
        explanation = TorchExplanation(recording)
    if options.json:
        code = _write_json(explanation.to_json(), options.json) or code
    if options.output or options.open:
        page = explanation.page(options.mode, options.device)
        code = _write_page(page, options.output, options.open) or code
    if not options.quiet and options.json != "-":
        print()
        command = shlex.join(["rushlight", "explain", "--torch", script, *args])
        explanation.print(command=command, rows=options.rows)
    return code


def _run(options: argparse.Namespace, script: Sequence[str]) -> int:
    module = script[:1] == ["-m"]
    script = script[1:] if module else script
    if not script or not module and not os.path.isfile(script[0]):
        asked = "the name of a module" if module else "a script"
        said = f"no such script: {script[0]}" if script else f"give {asked}"
        print(f"rushlight run: {said}", file=sys.stderr)
        return 2
    from rushlight import scripts

    return scripts.run_as_torch(script[0], list(script[1:]), options.report, module)


def _bisect(options: argparse.Namespace, script: Sequence[str]) -> int:
    if not script or not os.path.isfile(script[0]):
        said = f"no such script: {script[0]}" if script else "give a script"
        print(f"rushlight bisect: {said}", file=sys.stderr)
        return 2
    from rushlight.bisection.script import bisect_script

    verdict = bisect_script(
        script[0], list(script[1:]), options.mode, options.calls, options.output or ""
    )
    print("rushlight bisect: " + "\n".join(verdict.lines))
    return verdict.code


def _run_other(explanation: Any, script: str, args: list[str]) -> None:
    """The script again, in the mode that it did not take."""
    from rushlight import scripts
    from rushlight.report.observe import merge

    seen = explanation.observed
    taken = {s.mode for s in seen.selections if s.taken}
    for mode in ("eager", "compile"):
        if mode not in taken or mode == "eager" and seen.mode == "compile":
            again, _ = scripts.run_script(script, args, mode)
            merge(seen, again.explanation().observed)


def _reference(options: argparse.Namespace) -> int:
    """The page of the documented paths; `--mode` and `--device` say which is shown first."""
    from rushlight import observation
    from rushlight.report import page

    show = {k: v for k in ("mode", "device") if (v := getattr(options, k))}
    made = page.html(page.data(extra=None) | observation.page_vocabulary() | {"show": show})
    return _write_page(made, options.output or "rushlight-paths.html", options.open)


def _write_page(page: str, file: str | None, show: bool) -> int:
    """To `file`, whole or not at all; 1 where that fails."""
    import tempfile

    if file is None:
        file = os.path.join(tempfile.mkdtemp(prefix="rushlight-"), "path.html")
    part = f"{file}.part"
    try:
        with open(part, "w", encoding="utf-8") as stream:
            stream.write(page)
        os.replace(part, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        print(f"rushlight explain: cannot write {file}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"rushlight explain: the page is {file}", file=sys.stderr)
    if show:
        import pathlib
        import webbrowser

        webbrowser.open(pathlib.Path(file).resolve().as_uri())
    return 0


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    import difflib

    first = name.split(".")[0]
    near = [k for k in known if k.split(".")[0] == first]
    near = near or difflib.get_close_matches(name, known, 3) or list(known)[:8]
    listed = f"; near it: {', '.join(near)}" if near else ""
    return f"rushlight explain: this run used no {what} {name!r}{listed}"


def _show_kernel(explanation: Any, key: str) -> int:
    from rushlight.report import terminal

    observed = explanation.observed
    known = [row.key for row in observed.kernels]
    graphs = [g for c in observed.captures for g in c.graphs]
    known += dict.fromkeys(s.name for g in graphs for s in g.steps if s.generated)
    begun = [k for k in known if k.startswith(key + ".")]
    key = begun[0] if key not in known and len(begun) == 1 else key
    said = ""
    if any(row.key == key for row in observed.libraries):
        said = f"rushlight explain: {key} is a routine of a library, which has no generated source"
    elif key not in known:
        said = _unknown("kernel", key, known)
    else:
        try:
            shown = explanation.kernel(key)
        except KeyError:
            said = f"rushlight explain: no source is kept for kernel {key}"
    if said:
        print(said, file=sys.stderr)
        return 2
    terminal.console().print(shown)
    return 0


def _show_operator(explanation: Any) -> None:
    from rushlight.report import terminal

    terminal.console().print(terminal.way_down(explanation.observed.way_down))


def _write_json(path: dict[str, Any], file: str) -> int:
    import json

    text = json.dumps(path, indent=1, default=str)
    if file == "-":
        print(text)
        return 0
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    except OSError as error:
        print(f"rushlight explain: cannot write {file}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _info(options: argparse.Namespace) -> int:
    from rushlight import config, machine

    rows = {**machine.machine(), **machine.libraries(), **machine.cache_facts()}
    for name, value in rows.items():
        print(f"{name:14} {value}")
    print("\nsettings")
    for line in config.describe().splitlines():
        print(f"  {line}")
    return 0


def _cache(options: argparse.Namespace) -> int:
    """What lies in the artifact cache, newest first; or nothing any more."""
    import time

    from rushlight.runtime import cache

    if options.what == "clear":
        count, total = cache.clear()
        print(f"removed {count} files, {total:,} bytes, from {cache.place()}")
        return 0
    found = [e for ending in cache.ENDINGS for e in cache.entries(ending=ending)]
    found.sort(key=lambda e: e.used, reverse=True)
    total = sum(e.bytes for e in found)
    print(f"{cache.place()}: {len(found)} artifacts, {total:,} bytes")
    for e in found:
        age = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used))
        name = os.path.basename(e.path)[:12]
        print(f"{name}  {age}  {e.bytes:>9,}  {e.parts.get('graph', '')}")
    return 0


def _ops(options: argparse.Namespace) -> int:
    """One line an operator: kind of definition, derivative, where it is declared, schema."""
    from rushlight import kernel_sources

    rows = [row for row in kernel_sources.declarations() if options.pattern in row[0]]
    for _, kind, derivative, where, schema in rows:
        print(f"{kind:12} {derivative:8} {where:26} {schema}")
    print(f"{len(rows)} operators", file=sys.stderr)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
