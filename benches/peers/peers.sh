# Sourced by benches/ingest: installs the peers, and makes the configuration of qhook.

peers=target/peers

# fastify, pg and graphile-worker from npm.
install_node_peers() {
    local tool
    for tool in node npm; do command -v "$tool" >/dev/null || fail "$tool is needed for the peers"; done
    mkdir -p "$peers"
    cp benches/peers/package.json benches/peers/*.js "$peers/"
    say "installing the peers"
    (cd "$peers" && npm install --silent --no-audit --no-fund)
}

# qhook from crates.io, too.
install_peers() {
    install_node_peers
    [[ -x $peers/bin/qhook ]] || cargo install --quiet --locked qhook --version 0.6.1 --root "$peers"
}

# Serves with qhook: the URL of its database. Its one handler's target is down, so that deliveries cost little.
qhook() {
    local driver=postgres
    [[ $1 != sqlite* ]] || driver=sqlite
    cat >"$work/qhook-$driver.yaml" <<YAML
database:
  driver: $driver
  url: "$1"
  max_connections: 20
server:
  port: $port
  max_inbound: 1000
  allow_private_urls: true
sources:
  stripe:
    type: webhook
    verify: stripe
    secret: "$secret"
handlers:
  nothing:
    source: stripe
    events: ["*"]
    url: http://127.0.0.1:9/
YAML
    exec "$peers/bin/qhook" start --config "$work/qhook-$driver.yaml"
}
