# Installs schemathesis, which tests the API against its OpenAPI description: from PyPI, pinned in
# scripts/pins/schemathesis.txt.

pinned_schemathesis() { sed -nE 's/^schemathesis==([^ ]+).*/\1/p' "$pins/schemathesis.txt"; }
is_schemathesis() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == *" $(pinned_schemathesis)" ]]; }

# One on the PATH is not used: its dependencies may have other versions.
find_schemathesis() {
  first_that is_schemathesis < <(program_candidates SYMPHONY_SCHEMATHESIS schemathesis schemathesis)
}

cache_schemathesis() {
  add_to_cache schemathesis schemathesis 'downloading schemathesis with pip' unpack_python_program schemathesis \
    'import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis(prog_name="schemathesis"))' \
    schemathesis.txt
}

ensure_schemathesis() { ensure_python_program schemathesis; }
