#!/usr/bin/env bash
# Runs loaderx 1.5.2's own test suite over libzrfs.so: its Python package with nothing but the two shared objects swapped.
# usage: tests/dropin.sh LIBZRFS_SO [PYTHON [DIR]]
# PYTHON has loaderx installed (scripts/setup makes target/venv), and stays as it is: the package is copied into DIR
# (target/dropin). The suite comes from loaderx's source archive, which pip fetches into DIR once.
set -euo pipefail
version=1.5.2
lib=$(realpath "$1")
cd "$(dirname "$0")/.."
python=$(realpath -s "${2:-${ZRFS_PYTHON:-target/venv/bin/python}}")
dir=${3:-target/dropin}
mkdir -p "$dir"
cd "$dir"

suite=loaderx-$version/tests/test_loaderx.py
if [ ! -e "$suite" ]; then
    rm -rf fetched && mkdir fetched
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation \
        "loaderx==$version" -d fetched 2>fetched/log ||
        "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
            "loaderx==$version" -d fetched || { cat fetched/log >&2; exit 1; }
    tar xzf "fetched/loaderx-$version.tar.gz"
fi

package=$("$python" -c 'import loaderx, os; print(loaderx.__version__, os.path.dirname(loaderx.__file__))')
[ "${package%% *}" = $version ] || { echo "tests/dropin.sh: $python has loaderx ${package%% *}, not $version" >&2; exit 1; }
rm -rf site && mkdir site
cp -r "${package#* }" site/loaderx
for so in libzrecord.so libsampler.so; do
    # Copied, not linked: two libraries of their own, as they are there.
    cp --remove-destination "$lib" site/loaderx/lib/$so
done
export PYTHONPATH=$PWD/site
"$python" - "$PWD/site" <<'END'
import sys
from cffi import FFI
from loaderx import _lib
path = _lib.path("zrecord")
assert path.startswith(sys.argv[1]), f"the library is {path}"
ffi = FFI()
ffi.cdef("const char *zrfs_version(void);")
print("loaderx over zrfs", ffi.string(ffi.dlopen(path).zrfs_version()).decode())
END
exec "$python" "$suite"
