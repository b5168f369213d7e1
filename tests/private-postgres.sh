# Sourced: a PostgreSQL of one's own, for the time of a test run or a measurement. Needs `set -euo pipefail`, and the name
# of the script in `me`.
#
#   private_postgres FOLDER    finds or installs a server, starts it with its data below FOLDER, sets postgres_url
#   stop_postgres              stops it; the caller removes FOLDER
#
# POSTGRES_SETTINGS holds further lines of its configuration.

pg_bin=""
pg_user=""
pg_work=""
postgres_url=""

say() { printf '%s: %s\n' "$me" "$*" >&2; }
fail() { say "$*"; exit 1; }

private_postgres() {
    pg_work=$1
    find_postgres || { install_postgres; find_postgres || fail "the installed PostgreSQL is older than 15"; }
    choose_user
    start_postgres
}

stop_postgres() {
    [[ -n $pg_work && -e $pg_work/pg/data/postmaster.pid ]] || return 0
    (cd "$pg_work/pg" && as_pg "$pg_bin/pg_ctl" -D "$pg_work/pg/data" -m immediate -w stop >/dev/null 2>&1) || true
}

# Runs a command as the user that owns the private PostgreSQL, which refuses to run as root.
as_pg() {
    if [[ -z $pg_user ]]; then
        "$@"
    elif command -v setpriv >/dev/null; then
        setpriv --reuid "$pg_user" --regid "$(id -g "$pg_user")" --clear-groups -- "$@"
    else
        runuser -u "$pg_user" -- "$@"
    fi
}

# The newest PostgreSQL 15+ server on this machine, if there is one.
find_postgres() {
    local dir version
    pg_bin=""
    while read -r dir; do
        [[ -x $dir/initdb && -x $dir/pg_ctl && -x $dir/postgres ]] || continue
        version=$("$dir/postgres" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
        if ((version >= 15)); then
            pg_bin=$dir
            return 0
        fi
    done < <(
        ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin 2>/dev/null | sort -rV
        if command -v initdb >/dev/null; then dirname "$(readlink -f "$(command -v initdb)")"; fi
        if command -v pg_config >/dev/null; then pg_config --bindir; fi
    )
    return 1
}

install_postgres() {
    command -v apt-get >/dev/null || fail "PostgreSQL 15 or newer (the server) is needed; install it, or set CERCA_TEST_POSTGRES"
    [[ $(id -u) == 0 ]] || fail "PostgreSQL 15 or newer is needed: sudo apt-get install postgresql (or set CERCA_TEST_POSTGRES)"
    say "installing PostgreSQL"
    # Debian would start a cluster of its own at install; nothing here needs it.
    mkdir -p /etc/postgresql-common
    [[ -e /etc/postgresql-common/createcluster.conf ]] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    apt-get install -y -qq --no-install-recommends postgresql </dev/null >/dev/null
}

# As root: the user that will own the server.
choose_user() {
    [[ $(id -u) == 0 ]] || return 0
    for pg_user in postgres nobody; do
        if id "$pg_user" >/dev/null 2>&1; then return 0; fi
    done
    useradd --system --no-create-home cerca-test
    pg_user=cerca-test
}

free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    return 1
}

start_postgres() {
    local port
    chmod 755 "$pg_work"
    mkdir "$pg_work/pg"
    if [[ -n $pg_user ]]; then chown "$pg_user" "$pg_work/pg"; fi
    (cd "$pg_work/pg" && as_pg "$pg_bin/initdb" -D "$pg_work/pg/data" -U cerca --auth=trust -E UTF8 --locale=C >"$pg_work/initdb.log" 2>&1) ||
        { cat "$pg_work/initdb.log" >&2; fail "initdb failed"; }
    for _ in 1 2 3 4 5; do
        port=$(free_port) || fail "no free port"
        cat >"$pg_work/settings" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$pg_work/pg'
fsync = on
max_connections = 300
shared_buffers = 64MB
log_min_messages = fatal
${POSTGRES_SETTINGS:-}
CONF
        as_pg tee "$pg_work/pg/data/postgresql.auto.conf" <"$pg_work/settings" >/dev/null
        if (cd "$pg_work/pg" && as_pg "$pg_bin/pg_ctl" -D "$pg_work/pg/data" -l "$pg_work/pg/log" -w -t 60 start >/dev/null 2>&1 </dev/null); then
            postgres_url="postgres://cerca@127.0.0.1:$port/postgres"
            say "PostgreSQL $("$pg_bin/postgres" --version | sed -E 's/[^0-9]*([0-9.]+).*/\1/') on port $port"
            return 0
        fi
    done
    cat "$pg_work/pg/log" >&2 || true
    fail "PostgreSQL did not start"
}
