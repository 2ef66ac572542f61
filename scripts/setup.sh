# Sourced by scripts/try and scripts/test: makes .build/venv with everything that is pinned in requirements.txt.
# It needs python3 (3.11 or newer) and pip, neither ensurepip nor the right to install into that Python.

python=$(command -v "${PYTHON:-python3}") || { echo "error: there is no python3 on PATH" >&2; exit 4; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "error: $python is older than Python 3.11: name another with PYTHON=/path/to/python3" >&2
    exit 4
}

# What other tools were told elsewhere must not steer what is built here.
for name in $(env | sed -n 's/^\(UV_[A-Z_]*\)=.*/\1/p'); do
    case $name in UV_CACHE_DIR | UV_HTTP_TIMEOUT | UV_NATIVE_TLS | UV_SYSTEM_CERTS) ;; *) unset "$name" ;; esac
done
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_TARGET PIP_PREFIX PIP_USER PIP_CONSTRAINT PIP_REQUIREMENT || true

mkdir -p .build
if ! cmp -s scripts/uv.txt .build/uv.txt; then
    rm -rf .build/uv
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --require-hashes --no-deps --target .build/uv --requirement scripts/uv.txt
    cp scripts/uv.txt .build/uv.txt
fi
uv=.build/uv/bin/uv

[ -x .build/venv/bin/python ] || "$uv" venv --no-config --quiet --no-project --python "$python" .build/venv
"$uv" pip sync --no-config --quiet --require-hashes --python .build/venv/bin/python scripts/requirements.txt
"$uv" pip install --no-config --quiet --no-deps --no-build-isolation --python .build/venv/bin/python --editable .
PATH=$PWD/.build/venv/bin:$PATH
