//! Decides which IP addresses requests may reach: neither a URL nor DNS may lead into the internal network (SSRF).
//!
//! It refuses every address that the IANA special-purpose registries do not list as globally reachable. It also refuses
//! every form of IPv6 that embeds an IPv4 address, since the embedded address would pass unchecked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::SettingError;

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const REFUSED_V4: [(Ipv4Net, &str); 15] = [
    (v4(0, 0, 0, 8), "an unspecified address"),
    (v4(10, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 10), "a shared address of a carrier"),
    (v4(127, 0, 0, 8), "a loopback address"),
    (v4(169, 254, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 12), "a private address"),
    (v4(192, 0, 0, 24), "an address for protocols"),
    (v4(192, 0, 2, 24), "an address for documentation"),
    (v4(192, 88, 99, 24), "a 6to4 relay"),
    (v4(192, 168, 0, 16), "a private address"),
    (v4(198, 18, 0, 15), "an address for benchmarks"),
    (v4(198, 51, 100, 24), "an address for documentation"),
    (v4(203, 0, 113, 24), "an address for documentation"),
    (v4(224, 0, 0, 4), "a multicast address"),
    (v4(240, 0, 0, 4), "a reserved or broadcast address"),
];

/// The global unicast range of IPv6. All other ranges are refused.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

const REFUSED_V6: [(Ipv6Net, &str); 4] = [
    (v6(0x2001, 0, 0, 23), "an address for protocols or tunnels"),
    (v6(0x2001, 0xdb8, 0, 32), "an address for documentation"),
    (v6(0x2002, 0, 0, 16), "a 6to4 address, which embeds an IPv4 address"),
    (v6(0x3fff, 0, 0, 20), "an address for documentation"),
];

/// The exceptions of the setting `allow_private`: networks and names.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    networks: Vec<IpNet>,
    names: Vec<String>,
}

impl Allowed {
    pub(super) fn parse(entries: &[String]) -> Result<Self, SettingError> {
        let mut allowed = Self::default();
        for entry in entries {
            if let Ok(network) = entry.parse::<IpNet>() {
                if network.trunc() != network {
                    let text = format!("{network} has bits behind its prefix: write {}", network.trunc());
                    return Err(SettingError::new("allow_private", text));
                }
                allowed.networks.push(network);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                allowed.networks.push(address.into());
            } else if is_name(entry) {
                allowed.names.push(normalized(entry));
            } else {
                let text = "has an entry that is neither a network nor a name: write one such as \"10.1.0.0/16\" or \"bank.internal\"";
                return Err(SettingError::new("allow_private", text));
            }
        }
        Ok(allowed)
    }

    /// Allows every address, for a destination that only the settings decide about.
    pub(super) fn all() -> Self {
        let all = [IpNet::from(v4(0, 0, 0, 0)), IpNet::from(v6(0, 0, 0, 0))];
        Self { networks: all.into(), names: Vec::new() }
    }

    /// Whether a host name may resolve to any address.
    pub(super) fn allows_name(&self, name: &str) -> bool {
        self.names.contains(&normalized(name))
    }

    /// Why an address must not be reached. None if it may be.
    pub(super) fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let why = special(address)?;
        if !self.networks.iter().any(|network| network.contains(&address)) {
            return Some(why);
        }
        // An allowed translation network, such as a NAT64 prefix, does not allow the embedded address.
        match embedded_v4(address) {
            Some(inner) => self.refusal(IpAddr::V4(inner)),
            None => None,
        }
    }
}

/// The kind of a special-purpose address.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            REFUSED_V4.iter().find(|(network, _)| network.contains(&address)).map(|(_, why)| *why)
        }
        IpAddr::V6(address) if embedded_v4(address.into()).is_some() => {
            Some("an IPv6 address that embeds an IPv4 address")
        }
        IpAddr::V6(address) if GLOBAL_V6.contains(&address) => {
            REFUSED_V6.iter().find(|(network, _)| network.contains(&address)).map(|(_, why)| *why)
        }
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some("a loopback address"),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some("an unspecified address"),
        IpAddr::V6(address) if address.is_multicast() => Some("a multicast address"),
        IpAddr::V6(address) if address.is_unique_local() => Some("a private address"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("a link-local address"),
        IpAddr::V6(_) => Some("an address that is not globally reachable"),
    }
}

/// The IPv4 address that an IPv6 address embeds: mapped, compatible, translated, NAT64, 6to4.
fn embedded_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => from(high, low),
        _ => None,
    }
}

/// A host name in the form in which names are compared.
fn normalized(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // A last label of digits is a mistyped address.
    let name = text.trim_end_matches('.');
    name.len() <= 253
        && name.split('.').all(label)
        && !name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowed(entries: &[&str]) -> Allowed {
        Allowed::parse(&entries.iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn refused(allowed: &Allowed, address: &str) -> bool {
        allowed.refusal(address.parse().unwrap()).is_some()
    }

    #[test]
    fn special_purpose_addresses_are_refused() {
        let nothing = Allowed::default();
        for address in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:808:808::1",
            "2002:a00:1::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(refused(&nothing, address), "{address}");
        }
    }

    #[test]
    fn globally_reachable_addresses_are_not_refused() {
        let nothing = Allowed::default();
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.0.3.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2003::1",
            "2a00:1450::1",
            "3ffe::1",
            "2001:db7::1",
        ] {
            assert!(!refused(&nothing, address), "{address}");
        }
    }

    #[test]
    fn an_allowed_network_allows_its_own_addresses_and_no_others() {
        let some = allowed(&["127.0.0.0/8", "10.1.0.0/16", "fd00::/8", "192.168.7.9"]);
        for address in ["127.0.0.1", "10.1.255.255", "fd00::1", "192.168.7.9"] {
            assert!(!refused(&some, address), "{address}");
        }
        for address in ["10.2.0.0", "fc00::1", "::1", "::ffff:127.0.0.1", "192.168.7.10"] {
            assert!(refused(&some, address), "{address}");
        }
    }

    #[test]
    fn an_allowed_nat64_prefix_does_not_allow_the_embedded_address() {
        let nat64 = allowed(&["64:ff9b::/96"]);
        assert!(!refused(&nat64, "64:ff9b::8.8.8.8"));
        assert!(refused(&nat64, "64:ff9b::10.0.0.1"));
        assert!(!refused(&allowed(&["64:ff9b::/96", "10.0.0.0/8"]), "64:ff9b::10.0.0.1"));
        assert!(refused(&allowed(&["::/0"]), "::ffff:169.254.169.254"));
    }

    #[test]
    fn names_are_compared_without_case_and_final_dot() {
        let some = allowed(&["Bank.Internal", "localhost"]);
        assert!(
            some.allows_name("bank.internal")
                && some.allows_name("BANK.INTERNAL.")
                && some.allows_name("localhost")
        );
        assert!(
            !some.allows_name("evil.bank.internal")
                && !some.allows_name("bank.internal.evil")
                && !some.allows_name("")
        );
    }

    #[test]
    fn an_entry_that_is_neither_network_nor_name_is_refused() {
        for (entry, advice) in [
            ("10.1.2.3/8", "write 10.0.0.0/8"),
            ("10.0.0.0/33", "neither"),
            ("*.internal", "neither"),
            ("10.0.0", "neither"),
            ("", "neither"),
            ("http://bank", "neither"),
            ("bank internal", "neither"),
            ("[::1]", "neither"),
        ] {
            let error = Allowed::parse(&[entry.to_owned()]).unwrap_err().for_rail("sepa").to_string();
            assert!(error.starts_with("rail sepa: allow_private: ") && error.contains(advice), "{entry}: {error}");
        }
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_form_of_ipv6_smuggles_an_ipv4_address(bits: u32) {
            let inner = Ipv4Addr::from(bits);
            let [a, b, c, d] = inner.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for address in [
                inner.to_ipv6_mapped(),
                inner.to_ipv6_compatible(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert!(Allowed::default().refusal(address.into()).is_some());
                let all_of_six = allowed(&["::/0"]);
                prop_assume!(bits > 1);
                prop_assert_eq!(all_of_six.refusal(address.into()), all_of_six.refusal(inner.into()));
            }
        }

        #[test]
        fn what_the_standard_library_calls_private_is_refused(bits: u32) {
            let ip = Ipv4Addr::from(bits);
            if ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
                || ip.is_documentation() || ip.is_unspecified() {
                prop_assert!(Allowed::default().refusal(ip.into()).is_some());
            }
        }
    }
}
