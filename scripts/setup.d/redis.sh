# Installs redis-server: Debian's package, with apt-get or unpacked into the cache.
# No pin file: apt-get chooses the version.

is_redis() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == Redis\ server* ]]; }

find_redis() {
  first_that is_redis < <(program_candidates SYMPHONY_REDIS_SERVER redis redis-server \
    {/usr/bin,/usr/sbin,/usr/local/bin,/opt/homebrew/bin}/redis-server redis-server)
}

unpack_redis() {
  local libraries
  # The package redis-tools holds the server program.
  libraries=$(unpack_debs "$1" 'lib|lua-|redis-tools' redis-server) || return 1
  write_wrapper "$1" redis-server "$libraries" '' usr/bin/redis-server
}

cache_redis() { add_to_cache redis redis-server 'unpacking redis-server' unpack_redis; }
ensure_redis() { ensure_debian_program redis redis-server SYMPHONY_REDIS_SERVER redis-server; }
