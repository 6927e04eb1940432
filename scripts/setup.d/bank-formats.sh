# Installs a Python with the schemas of ISO 20022 and verifiers of signatures, with which tests check what rails send:
# from PyPI, pinned in scripts/pins/bank-formats.txt.

is_bank_formats() {
  [[ -x $1 ]] && cmp -s "${1%/bin/bank-formats}/pins.txt" "$pins/bank-formats.txt" && "$1" --version >/dev/null 2>&1 </dev/null
}

find_bank_formats() {
  first_that is_bank_formats < <(program_candidates SYMPHONY_BANK_FORMATS bank-formats bank-formats)
}

# The program runs a script of the tests.
cache_bank_formats() {
  add_to_cache bank-formats bank-formats 'downloading ISO 20022 schemas and verifiers with pip' \
    unpack_python_program bank-formats \
    'import sys, runpy, xmlschema, jwcrypto, http_message_signatures; sys.argv[1] == "--version" or (sys.argv.pop(0), runpy.run_path(sys.argv[0], run_name="__main__"))' \
    bank-formats.txt
}

ensure_bank_formats() { ensure_python_program bank-formats; }
