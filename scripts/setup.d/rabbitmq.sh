# Installs rabbitmq-server with Erlang: Debian's packages, with apt-get or unpacked into the cache.
# No pin file: apt-get chooses the version.

# To ask rabbitmq-server for its version would start it. This looks for Erlang's epmd instead, which it needs.
is_rabbitmq() { [[ -x $1 ]] && { [[ -x $(dirname "$1")/epmd ]] || have epmd; }; }

find_rabbitmq() {
  # Debian's program on the PATH insists on the user rabbitmq; the one in /usr/lib does not.
  first_that is_rabbitmq < <(program_candidates SYMPHONY_RABBITMQ_SERVER rabbitmq rabbitmq-server \
    {/usr/lib/rabbitmq/bin,/usr/bin,/usr/sbin,/usr/local/bin,/opt/homebrew/bin}/rabbitmq-server rabbitmq-server)
}

unpack_rabbitmq() {
  local libraries
  libraries=$(unpack_debs "$1" 'lib|erlang-[a-gi-z]' rabbitmq-server erlang-base) || return 1
  ln -s ../usr/lib/erlang/bin/epmd "$1/tree/bin/epmd"
  # shellcheck disable=SC2016 # the wrapper expands $here, not this script
  write_wrapper "$1" rabbitmq-server "$libraries" '$here/usr/lib/erlang/bin:' usr/lib/rabbitmq/bin/rabbitmq-server
}

cache_rabbitmq() { add_to_cache rabbitmq rabbitmq-server 'unpacking rabbitmq-server' unpack_rabbitmq; }
ensure_rabbitmq() { ensure_debian_program rabbitmq rabbitmq-server SYMPHONY_RABBITMQ_SERVER rabbitmq-server; }
