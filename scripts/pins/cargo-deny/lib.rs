//! Empty: this package only pins cargo-deny, see Cargo.toml.
