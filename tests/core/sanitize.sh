#!/bin/sh
# Builds rt and core with AddressSanitizer and UndefinedBehaviorSanitizer, without free lists, and runs the native tests on
# them. Usage: tests/core/sanitize.sh [build folder] [pytest arguments]. PYTHON chooses the interpreter (pytest, numpy).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$(mktemp -d)}
[ $# -gt 0 ] && shift
python=${PYTHON:-python}
cxx=${CXX:-g++}
mkdir -p "$out/lib"
include=$("$python" -c "import sysconfig; print(sysconfig.get_path('include'))")
suffix=$("$python" -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
flags="-std=c++17 -O1 -g -fPIC -fno-omit-frame-pointer -fno-strict-aliasing -fsanitize=address,undefined -fno-sanitize-recover=undefined
  -DRUSHLIGHT_NO_FREELISTS -I$root/csrc"

objects() {                      # $1 room, $2 more flags: compiles what is older than its source
  for source in "$root"/csrc/"$1"/*.cpp; do
    case $source in */test_* | */row_loops.cpp) continue ;; esac
    object=$out/$1_$(basename "$source" .cpp).o
    newest=$(ls -t "$source" "$root"/csrc/core/*.h "$root"/csrc/rt/*.h "$object" 2>/dev/null | head -1)
    [ "$newest" = "$object" ] || $cxx $flags $2 -c "$source" -o "$object"
  done
}
for source in "$root"/csrc/core/*.c; do
  ${CC:-gcc} ${flags#-std=c++17} "-I$include" -c "$source" -o "$out/core_$(basename "$source" .c).o"
done
for level in v2 v3 v4; do                # compiled once an instruction set
  $cxx $flags -DRL_LEVEL=$level -c "$root/csrc/rt/row_loops.cpp" -o "$out/rt_row_loops_$level.o"
done
objects rt "-fopenmp"
objects core "-I$include"
$cxx -shared -fsanitize=address,undefined -fopenmp "$out"/rt_*.o -o "$out/lib/librushlight_rt.so" -ldl
$cxx -shared -fsanitize=address,undefined "$out"/core_*.o "$out/lib/librushlight_rt.so" -Wl,-rpath,'$ORIGIN/lib' -o "$out/_core$suffix" -ldl

cd "$here"
for file in native_*.py; do
  RUSHLIGHT_CORE=$out/_core$suffix LD_PRELOAD="$($cxx -print-file-name=libasan.so) $($cxx -print-file-name=libstdc++.so.6)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2 \
    "$python" -X faulthandler -m pytest -q --noconftest -p no:cacheprovider "$file" "$@"
done
