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


def without_outputs(command: list[str]) -> list[str]:
    """The command without -o, -c and the dependency options: what decides the object's bytes."""
    kept, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word in ("-o", "-MT", "-MF", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            kept.append(word)
    return kept


def digest(command: list[str], source: str) -> str:
    dependencies = [w for i, w in enumerate(command)
                    if w in ("-MD", "-MT", "-MF", "-MQ") or command[i - 1] in ("-MT", "-MF", "-MQ")]
    base = without_outputs(command)
    text = subprocess.run([*base, *dependencies, "-E", "-P"], check=True, stdout=subprocess.PIPE).stdout
    version = subprocess.run([command[0], "-v"], capture_output=True, check=True).stderr
    # Paths of sources and headers decide nothing once the text is preprocessed, except in debug info.
    flags = [w for i, w in enumerate(base) if w != source and not w.startswith("-I")
             and w != "-isystem" and base[i - 1] != "-isystem"]
    if any(w.startswith("-g") and w != "-g0" for w in flags):
        flags.append(os.getcwd())
    flags.sort(key=lambda w: not w.startswith("-std="))      # CMake's versions place it differently
    sha = hashlib.sha256()
    for part in (version, "\0".join(flags[1:]).encode(), text):
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
        return subprocess.call(command)               # let the compiler say what is wrong
    if os.path.exists(kept):
        shutil.copyfile(kept, target)
        return 0
    code = subprocess.call(command)
    if code == 0:
        try:                                          # a cache that cannot be written is no error
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
