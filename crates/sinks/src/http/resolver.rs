//! Names that lead to addresses which may be reached, and to no others.
//!
//! It sits where the connection is made, so that a name is looked up once and what was checked is what is reached.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::Allowed;

/// The system's resolver behind a filter.
pub(super) struct Filtered(pub(super) Allowed);

/// A name led only to addresses that must not be reached.
#[derive(Debug, thiserror::Error)]
#[error("the rail's host leads to {why} (allow_private lets requests go there)")]
struct AddressRefused {
    why: &'static str,
}

impl Resolve for Filtered {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses = if allowed.name(name.as_str()) { found } else { reachable(found, &allowed)? };
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn reachable(found: Vec<SocketAddr>, allowed: &Allowed) -> Result<Vec<SocketAddr>, AddressRefused> {
    let mut refusal = None;
    let mut addresses = found;
    addresses.retain(|address| match allowed.refusal(address.ip()) {
        None => true,
        Some(why) => {
            refusal = Some(why);
            false
        }
    });
    match refusal {
        Some(why) if addresses.is_empty() => Err(AddressRefused { why }),
        _ => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn what_may_be_reached_is_kept_and_the_rest_dropped() {
        let kept = reachable(found(&["10.0.0.1", "8.8.8.8", "::1"]), &Allowed::default()).unwrap();
        assert_eq!(kept, found(&["8.8.8.8"]));
    }

    #[test]
    fn a_name_that_leads_only_into_the_house_is_refused() {
        let refused = reachable(found(&["10.0.0.1"]), &Allowed::default()).unwrap_err();
        assert!(refused.to_string().contains("a private address"));
    }
}
