//! The URL of a server, turned to another database or user.

use super::Error;

/// A URL in its parts. What is not about the user or the database stays as it was given.
#[derive(Clone, Debug)]
pub(super) struct Address {
    scheme: String,
    /// `user` or `user:password`.
    user: String,
    /// `host:port`; may be empty where the options name a socket.
    host: String,
    database: String,
    /// With its question mark, or empty.
    options: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = || Error::Address { given: without_password(url) };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(wrong());
        }
        let (place, options) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, host) = authority.rsplit_once('@').ok_or_else(wrong)?;
        let database = if database.is_empty() { "postgres" } else { database };
        Ok(Self {
            scheme: scheme.to_owned(),
            user: user.to_owned(),
            host: host.to_owned(),
            database: database.to_owned(),
            options: options.to_owned(),
        })
    }

    /// The URL as it was given.
    pub(super) fn as_given(&self) -> String {
        self.database(&self.database)
    }

    /// The same server and user, another database.
    pub(super) fn database(&self, name: &str) -> String {
        self.url(&self.user, name)
    }

    /// The same server, another user and another database.
    pub(super) fn login(&self, user: &str, password: &str, database: &str) -> String {
        self.url(&format!("{user}:{password}"), database)
    }

    fn url(&self, user: &str, database: &str) -> String {
        let Self { scheme, host, options, .. } = self;
        format!("{scheme}://{user}@{host}/{database}{options}")
    }
}

/// What an error may show.
fn without_password(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, place)) => format!("…@{place}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_turned_to_another_database_and_keeps_the_rest() {
        let address = Address::parse("postgres://root:secret@[::1]:5433/postgres?connect_timeout=3").unwrap();
        assert_eq!(address.as_given(), "postgres://root:secret@[::1]:5433/postgres?connect_timeout=3");
        assert_eq!(address.database("other"), "postgres://root:secret@[::1]:5433/other?connect_timeout=3");
        assert_eq!(address.login("me", "word", "other"), "postgres://me:word@[::1]:5433/other?connect_timeout=3");
    }

    #[test]
    fn without_a_database_the_address_is_of_the_one_that_is_always_there() {
        assert_eq!(Address::parse("postgres://root@host").unwrap().as_given(), "postgres://root@host/postgres");
    }

    #[test]
    fn what_is_not_a_url_is_refused_without_showing_a_password() {
        let refusal = Address::parse("mysql://root:secret@host/db").unwrap_err().to_string();
        assert!(refusal.contains("postgres://user@host:port/database"), "{refusal}");
        assert!(!refusal.contains("secret"), "{refusal}");
        assert!(Address::parse("host=localhost user=root").is_err());
    }
}
