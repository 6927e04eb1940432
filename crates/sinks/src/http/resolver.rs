//! Resolves host names and drops the addresses that must not be reached (SSRF protection).
//!
//! The filter is part of the client's resolver, so that the checked address is the one that is connected to: a second
//! DNS lookup could return another (DNS rebinding).

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::Allowed;

/// The system's resolver with a filter.
pub(super) struct FilteredResolver(pub(super) Allowed);

/// A name resolved only to addresses that must not be reached.
#[derive(Debug, thiserror::Error)]
#[error("the host resolves to {why}: add its name or network to allow_private to permit it")]
struct AddressRefused {
    why: &'static str,
}

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses = if allowed.allows_name(name.as_str()) { found } else { reachable(found, &allowed)? };
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
    fn only_allowed_addresses_are_kept() {
        let kept = reachable(found(&["10.0.0.1", "8.8.8.8", "::1"]), &Allowed::default()).unwrap();
        assert_eq!(kept, found(&["8.8.8.8"]));
    }

    #[test]
    fn a_name_that_resolves_only_to_internal_addresses_is_refused() {
        let refused = reachable(found(&["10.0.0.1"]), &Allowed::default()).unwrap_err();
        assert!(refused.to_string().contains("a private address"));
    }
}
