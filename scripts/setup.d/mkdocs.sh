# Installs MkDocs with its theme, which builds the documentation site: from PyPI, pinned in scripts/pins/docs.txt.

# Themes and extensions must have their pinned versions, too: compare the whole pin file with the one in the cache.
is_mkdocs() {
  [[ -x $1 ]] && cmp -s "${1%/bin/mkdocs}/pins.txt" "$pins/docs.txt" && "$1" --version >/dev/null 2>&1 </dev/null
}

find_mkdocs() { first_that is_mkdocs < <(printf '%s\n' {"$cache","$shared_cache"}/mkdocs/bin/mkdocs); }

cache_mkdocs() {
  add_to_cache mkdocs mkdocs 'downloading mkdocs with pip' unpack_python_program mkdocs \
    'from mkdocs.__main__ import cli; cli(prog_name="mkdocs")' docs.txt
}

ensure_mkdocs() { ensure_python_program mkdocs; }
