# Installs PgBouncer: Debian's package, with apt-get or unpacked into the cache.
# No pin file: apt-get chooses the version.

is_pgbouncer() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == PgBouncer* ]]; }

# An installed PgBouncer is preferred to the one in the cache.
pgbouncer_candidates() {
  if [[ $cache_only == no ]]; then
    [[ -z ${SYMPHONY_PGBOUNCER:-} ]] || echo "$SYMPHONY_PGBOUNCER"
    command -v pgbouncer || true
    printf '%s\n' {/usr/sbin,/usr/bin,/usr/local/bin,/opt/homebrew/bin}/pgbouncer
  fi
  printf '%s\n' {"$cache","$shared_cache"}/pgbouncer/bin/pgbouncer
}

find_pgbouncer() { first_that is_pgbouncer < <(pgbouncer_candidates); }

unpack_pgbouncer() {
  local libraries
  libraries=$(unpack_debs "$1" lib pgbouncer) || return 1
  write_wrapper "$1" pgbouncer "$libraries" '' usr/sbin/pgbouncer
}

cache_pgbouncer() { add_to_cache pgbouncer pgbouncer "unpacking Debian's PgBouncer" unpack_pgbouncer; }
ensure_pgbouncer() { ensure_debian_program pgbouncer PgBouncer SYMPHONY_PGBOUNCER pgbouncer; }
