# Sourced: what the tests of brokers need, found or installed. The tests start, kill and stop the servers themselves.
# Needs `set -euo pipefail`, and `say` and `fail` of private-postgres.sh.
#
#   build_needs     what the clients of brokers are compiled with (Kafka: C++, make, OpenSSL, zlib)
#   find_brokers    nats-server, rabbitmq-server, redis-server; sets moto_python, which stands in for SQS
#   find_python     Python with venv

moto_version="5.2.5"
moto_python=""
python_bin=""

# Whether a program is there, in PATH or where servers are.
has() {
    command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 || -x /usr/lib/rabbitmq/bin/$1 ]]
}

# Installs Debian packages; no server is started by it.
apt_install() {
    command -v apt-get >/dev/null || fail "needed and not here: $*"
    [[ $(id -u) == 0 ]] || fail "needed: sudo apt-get install $*"
    say "installing $*"
    local policy=/usr/sbin/policy-rc.d ours="" code=0
    if [[ ! -e $policy ]]; then
        ours=1
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get update -qq </dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null || code=$?
    if [[ -n $ours ]]; then rm -f "$policy"; fi
    ((code == 0)) || fail "apt-get could not install $*"
}

build_needs() {
    local missing=()
    { command -v cc && command -v c++ && command -v make; } >/dev/null || missing+=(build-essential)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    [[ -e /usr/include/openssl/ssl.h ]] || pkg-config --exists openssl 2>/dev/null || missing+=(libssl-dev)
    [[ -e /usr/include/zlib.h ]] || pkg-config --exists zlib 2>/dev/null || missing+=(zlib1g-dev)
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
}

find_brokers() {
    local missing=() server
    for server in nats-server rabbitmq-server redis-server; do
        has "$server" || missing+=("$server")
    done
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
    find_python
    find_moto
}

find_python() {
    local missing=()
    command -v python3 >/dev/null || missing+=(python3)
    # Debian keeps what venv needs in a package of its own.
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
}

# moto stands in for SQS.
find_moto() {
    python_package "moto[server]" "$moto_version" moto.server
    moto_python=$python_bin/python
}

# Sets python_bin to the programs of an environment with this package, kept beside what cargo builds. Name for pip,
# version, a module that must be there.
python_package() {
    local target folder name=${1%%[*}
    target=${CARGO_TARGET_DIR:-target}
    folder=$target/test-tools/$name-$2
    python_bin=$(realpath -m "$folder")/bin
    if "$python_bin/python" -c "import $3" 2>/dev/null; then return 0; fi
    say "installing $name $2"
    rm -rf "$folder"
    mkdir -p "$target/test-tools"
    python3 -m venv "$folder"
    "$python_bin/python" -m pip install --quiet --disable-pip-version-check "$1==$2" </dev/null ||
        fail "$name could not be installed with pip"
}
