# Installs DuckDB, with which a test reads an archive of the ledger: from PyPI, pinned in scripts/pins/duckdb.txt.

pinned_duckdb() { sed -nE 's/^duckdb==([^ ]+).*/\1/p' "$pins/duckdb.txt"; }
is_duckdb() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == *" $(pinned_duckdb)" ]]; }

find_duckdb() {
  first_that is_duckdb < <(program_candidates SYMPHONY_DUCKDB duckdb duckdb)
}

# The program runs one statement and prints its rows.
cache_duckdb() {
  add_to_cache duckdb duckdb 'downloading DuckDB with pip' unpack_python_program duckdb \
    'import sys, duckdb; a = sys.argv[1]; print("duckdb", duckdb.__version__) if a == "--version" else [print(*row, sep="|") for row in duckdb.sql(a).fetchall()]' \
    duckdb.txt
}

ensure_duckdb() { ensure_python_program duckdb; }
