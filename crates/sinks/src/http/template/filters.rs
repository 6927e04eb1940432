//! The filters of templates. None of them computes with amounts, reads a clock or marks a text as escaped.

use minijinja::{Environment, Error, ErrorKind, Value, filters, tests};
use sha2::{Digest, Sha256};

use super::variables::ExactNumber;
use crate::money;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("upper", filters::upper);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("replace", filters::replace);
    environment.add_filter("split", filters::split);
    environment.add_filter("join", filters::join);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("default", filters::default);
    environment.add_filter("at_most", at_most);
    environment.add_filter("sha256", sha256);
    environment.add_filter("number", number);
    environment.add_filter("minor_units", minor_units);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("none", tests::is_none);
    environment.add_test("startingwith", tests::is_startingwith);
}

/// The text, unless it is longer than the bank's field. Cutting it silently would pay with another reference.
fn at_most(text: String, limit: usize) -> Result<String, Error> {
    let length = text.chars().count();
    if length > limit {
        return Err(refused(format!("a value has {length} characters, and at most {limit} are allowed")));
    }
    Ok(text)
}

/// The SHA-256 of a text, as 64 hexadecimal digits: an id for banks whose field is shorter than our key.
fn sha256(text: String) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A decimal text as a JSON number, with the same digits.
fn number(text: String) -> Result<Value, Error> {
    if money::is_decimal(&text) {
        Ok(Value::from_object(ExactNumber(text)))
    } else {
        Err(refused("number needs a decimal in a text, such as \"10.00\"".to_owned()))
    }
}

/// An amount in the smallest unit of its currency: `"10.50"` in EUR is 1050.
fn minor_units(amount: String, currency: String) -> Result<Value, Error> {
    let units = money::minor_units(&amount, &currency);
    let units = units.ok_or_else(|| {
        refused("minor_units needs an amount in a text and its currency, such as \"10.00\" and \"EUR\"".to_owned())
    })?;
    Ok(Value::from_object(ExactNumber(units)))
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::BadEscape, why)
}
