# Sourced by the measurements: a private PostgreSQL that really syncs, servers in the background, the load generator.
# Needs `set -euo pipefail`, and the name of the script in `me`.
#
# HOOKLOAD names the load generator: a program that takes `--addr HOST:PORT --secret S --scheme stripe -n REQUESTS
# -c CONNECTIONS --body BYTES --run PREFIX`, sends so many signed Stripe events under ids of their own to
# /webhooks/stripe, and prints one JSON line with rps, acked, errors, codes, p50_us and p99_us. It must also know
# `--rate PER_SECOND` (an open loop) and `--dup-every K` (each K-th request repeats an id).

caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/private-postgres.sh

body=${BODY:-2048}
secret=whsec_measured
work=""
server=""

stop() {
    local code=$?
    trap - EXIT
    trap '' INT TERM
    stop_server
    if [[ -n $work ]]; then
        stop_postgres
        rm -rf "$work"
    fi
    exit "$code"
}

stop_server() {
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=""
    fi
}

# Starts a server in the background and waits until its port answers.
start_server() {
    "$@" >"$work/server.log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 400); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    cat "$work/server.log" >&2
    fail "the server did not start: $1"
}

load() { # connections, requests, prefix, further options
    "$HOOKLOAD" --addr "127.0.0.1:$port" --secret "$secret" --scheme stripe -n "$2" -c "$1" --body "$body" --run "$3" "${@:4}"
}

api() { curl -fsS "http://127.0.0.1:$admin_port/api/v1/$1"; }

# Waits until nothing is left to be handled; gives the milliseconds.
drain() {
    local begin
    begin=$(date +%s%3N)
    until [[ $(api "events?status=pending&limit=1" | jq '.events | length') == 0 ]]; do
        sleep 0.02
    done
    echo $(($(date +%s%3N) - begin))
}

# Fails unless so many events are stored: a fast server that loses what it acknowledged measures nothing.
expect_stored() {
    local stored=0
    # Counts of large tables are kept for a while.
    for _ in $(seq 120); do
        stored=$(api stats | jq .events)
        [[ $stored != "$1" ]] || return 0
        sleep 0.5
    done
    fail "$1 acknowledged, $stored stored"
}

# Sets ms to a time in milliseconds: microseconds, digits after the point.
ms() { awk -v us="$1" 'BEGIN { printf "%.2f", us / 1000 }'; }

peak_mb() { awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$server/status"; }

# A configuration of Cerca, whose path it gives: name, store URL, further tables (one handler and its like).
config() {
    cat >"$work/$1.toml" <<TOML
[server]
listen = "127.0.0.1:$port"
public_url = "https://hooks.example.com"
[admin]
listen = "127.0.0.1:$admin_port"
[store]
url = "$2"
[[provider]]
name = "stripe"
secrets = ["$secret"]
$3
TOML
    echo "$work/$1.toml"
}

log_handler() { printf '[[handler]]\nname = "log"\nkind = "log"\nevents = ["%s"]\n' "$1"; }

sql() { "$pg_bin/psql" -X -q -A -t -d "${2:-$postgres_url}" -c "$1"; }

# Makes a database and gives its URL.
database() {
    sql "create database $1" >/dev/null
    echo "${postgres_url%/*}/$1"
}

# Builds what is measured, makes the folder, starts PostgreSQL.
prepare() {
    : "${HOOKLOAD:?names the load generator; see benches/lib.sh}"
    cd "$caller"; HOOKLOAD=$(readlink -f "$HOOKLOAD"); cd - >/dev/null
    [[ -x $HOOKLOAD ]] || fail "HOOKLOAD is not a program: $HOOKLOAD"
    local tool
    for tool in jq curl; do command -v "$tool" >/dev/null || fail "$tool is needed"; done
    if [[ ${BUILT:-} != yes ]]; then
        say "building (BUILT=yes takes what is in target/release)"
        cargo build --release --quiet
        cargo build --release --quiet --manifest-path benches/compare/Cargo.toml --target-dir target/compare
    fi
    work=$(mktemp -d "${MEASURE_DIR:-${TMPDIR:-/tmp}}/cerca-measure.XXXXXX")
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # What docs/performance.md recommends for a small server; everything that is measured gets the same.
    export POSTGRES_SETTINGS="${POSTGRES_SETTINGS-shared_buffers = 512MB
max_wal_size = 8GB
checkpoint_timeout = 15min
wal_compression = lz4}"
    private_postgres "$work"
    port=$(free_port)
    admin_port=$(free_port)
    export LISTEN="127.0.0.1:$port" SECRET="$secret" RUST_LOG=warn
    sync_us=$(sync_time)
}

# What one fdatasync takes in the folder of the stores, in microseconds.
sync_time() { (cd "$work" && as_pg "$pg_bin/pg_test_fsync" -s 1 -f "$work/pg/sync" 2>/dev/null) | awk '/fdatasync/ && $2 ~ /^[0-9]/ { print int($4); exit }'; }

conditions() {
    printf '%s cores, %s; PostgreSQL %s with fsync; one fdatasync %s ms; bodies of %s B.\n\n' "$(nproc)" "$(uname -sr)" \
        "$("$pg_bin/postgres" --version | sed -E 's/[^0-9]*([0-9.]+).*/\1/')" "$(ms "${sync_us:-0}")" "$body"
}
