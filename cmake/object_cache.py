"""A compiler launcher: compiles once, and copies the object from then on.

    python -S object_cache.py CACHE_FOLDER g++ FLAGS... -MD -MT T -MF F.d -o X.o -c X.cpp

The key is a digest of the preprocessed source, the flags and the compiler's version, so an object
is shared by every build folder and every Python whose headers do not reach it. The dependency file
is written by the preprocessor run, on hits too. Anything unexpected falls back to the compiler.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile


def split(command: list[str]) -> tuple[list[str], list[str]]:
    """What decides the object's bytes (compiler, flags, source), and the dependency options."""
    compile_, dependencies = [], []
    words = iter(command)
    for word in words:
        if word == "-o":
            next(words)
        elif word in ("-MT", "-MF", "-MQ"):
            dependencies += [word, next(words)]
        elif word in ("-MD", "-MMD"):
            dependencies.append(word)
        elif word != "-c":
            compile_.append(word)
    return compile_, dependencies


def deciding(flags: list[str], source: str) -> list[str]:
    """The flags that decide the object once the text is preprocessed: paths only in debug info."""
    kept, words = [], iter(flags)
    for word in words:
        if word in ("-I", "-isystem"):
            next(words)
        elif word != source and not word.startswith("-I"):
            kept.append(word)
    if any(word.startswith("-g") and word != "-g0" for word in kept):
        kept.append(os.getcwd())
    return sorted(kept, key=lambda w: not w.startswith("-std="))  # whose place varies with CMake's


def digest(command: list[str], source: str) -> str:
    """Preprocesses (writing the dependency file) and returns the key."""
    (compiler, *flags), dependencies = split(command)
    preprocess = [compiler, *flags, *dependencies, "-E", "-P"]
    text = subprocess.run(preprocess, check=True, stdout=subprocess.PIPE).stdout
    version = subprocess.run([compiler, "-v"], capture_output=True, check=True).stderr
    sha = hashlib.sha256()
    for part in (version, "\0".join(deciding(flags, source)).encode(), text):
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()


def main() -> int:
    folder, command = sys.argv[1], sys.argv[2:]
    if "-c" not in command or "-o" not in command:
        return subprocess.call(command)
    target, source = command[command.index("-o") + 1], command[command.index("-c") + 1]
    try:
        kept = os.path.join(folder, digest(command, source) + ".o")
    except (OSError, subprocess.CalledProcessError):
        return subprocess.call(command)  # let the compiler say what is wrong
    if os.path.exists(kept):
        shutil.copyfile(kept, target)
        return 0
    code = subprocess.call(command)
    if code == 0:
        try:  # a cache that cannot be written is no error
            os.makedirs(folder, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder)
            os.close(handle)
            shutil.copyfile(target, temporary)
            os.replace(temporary, kept)
        except OSError:
            pass
    return code


if __name__ == "__main__":
    sys.exit(main())
