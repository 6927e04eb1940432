# Unpacks promtool and prometheus: Debian's package, into the cache. No pin file: apt-get chooses the version.
#
# The package is never installed, because its install script would start a server.

# Whether program $2 says that it is $1, which is promtool or prometheus.
is_named() { [[ -x $2 && $("$2" --version 2>&1 </dev/null) == "$1, version "* ]]; }
is_prometheus() { is_named prometheus "$1"; }

# find_prometheus promtool|prometheus
find_prometheus() {
  first_that is_named "$1" < <(program_candidates "SYMPHONY_${1^^}" prometheus "$1" \
    {/usr/bin,/usr/local/bin,/opt/homebrew/bin}/"$1" "$1")
}

unpack_prometheus() {
  # Both programs need the C library alone; the other dependencies of the package are for its web pages.
  unpack_debs "$1" prometheus prometheus >/dev/null || return 1
  ln -s ../usr/bin/promtool "$1/tree/bin/promtool"
  ln -s ../usr/bin/prometheus "$1/tree/bin/prometheus"
  chmod -R a+rX "$1/tree"
}

cache_prometheus() { add_to_cache prometheus prometheus "unpacking Debian's Prometheus" unpack_prometheus; }

ensure_prometheus() {
  local name program
  for name in promtool prometheus; do
    if ! program=$(find_prometheus "$name"); then
      cache_prometheus && program=$(find_prometheus "$name") ||
        fail "found no $name: download a release of Prometheus, and set SYMPHONY_${name^^} to the program"
    fi
    log "$name is $program"
    echo "$program"
  done
}
