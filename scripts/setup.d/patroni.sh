# Unpacks etcd, HAProxy and Patroni: Debian's packages, into the cache. No pin file: apt-get chooses the versions.
#
# The packages are never installed, because their install scripts would start servers. Patroni from PyPI would need
# python-etcd, which has no wheel.

# Whether program $2 is $1, which is etcd, haproxy or patroni.
is_cluster_program() {
  local prefix
  case $1 in
    etcd) prefix='etcd Version:' ;;
    haproxy) prefix='HAProxy version' ;;
    patroni) prefix='patroni ' ;;
  esac
  [[ -x $2 && $("$2" --version 2>/dev/null </dev/null) == "$prefix"* ]]
}
is_patroni() { is_cluster_program patroni "$1"; }

# find_cluster_program etcd|haproxy|patroni
find_cluster_program() {
  first_that is_cluster_program "$1" < <(program_candidates "SYMPHONY_${1^^}_PROGRAM" patroni "$1" \
    {/usr/bin,/usr/sbin,/usr/local/bin,/opt/homebrew/bin}/"$1" "$1")
}

unpack_patroni() {
  local libraries
  # Its Python packages are for Debian's Python, which need not be the first on the PATH.
  [[ -x /usr/bin/python3 ]] || { log 'Patroni needs /usr/bin/python3'; return 1; }
  libraries=$(unpack_debs "$1" 'lib|python3-' patroni python3-etcd etcd-server haproxy) || return 1
  write_wrapper "$1" etcd "$libraries" '' usr/bin/etcd
  write_wrapper "$1" haproxy "$libraries" '' usr/sbin/haproxy
  cat >"$1/tree/bin/patroni" <<WRAPPER
#!/bin/sh
# Runs the Patroni of this folder with the packages of this folder.
here=\$(CDPATH= cd -- "\$(dirname -- "\$0")/.." && pwd) || exit 1
export PYTHONPATH="\$here/usr/lib/python3/dist-packages\${PYTHONPATH:+:\$PYTHONPATH}"
libraries=$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH="\${libraries#:}"
exec /usr/bin/python3 "\$here/usr/bin/patroni" "\$@"
WRAPPER
  chmod a+x "$1/tree/bin/patroni"
}

cache_patroni() { add_to_cache patroni patroni "unpacking Debian's Patroni, etcd and HAProxy" unpack_patroni; }

ensure_patroni() {
  local name program
  for name in etcd haproxy patroni; do
    if ! program=$(find_cluster_program "$name"); then
      cache_patroni && program=$(find_cluster_program "$name") ||
        fail "found no $name: $(install_hint etcd-server haproxy patroni), or set SYMPHONY_${name^^}_PROGRAM to it"
    fi
    log "$name is $program"
    echo "$program"
  done
}
