//! The network namespace of a cluster and the pair of interfaces that leads to it.
//!
//! Promise: nothing of the host's network changes but one interface with an address out of
//! 198.18.0.0/15 (the range for tests of networks, which no real network uses). The cluster has
//! no way out: the host forwards nothing for it.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};

use crate::paths::ClusterPaths;
use crate::sh::{cmd, run, succeeds};

/// The two ends of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The host's end.
    pub host: Ipv4Addr,
    /// The cluster's end, where the API server listens.
    pub inner: Ipv4Addr,
}

/// Makes the namespace with its pair.
///
/// The caller holds the machine's lock: two calls at once could pick the same addresses.
pub fn create(paths: &ClusterPaths) -> Result<Pair> {
    let name = paths.netns();
    let used = run(
        "list the host's addresses",
        &mut cmd("ip", ["-4", "-oneline", "addr"]),
    )?;
    let pair = free_pair(&paths.id, &used)?;
    let ip = |what: &str, args: &[&str]| run(what, &mut cmd("ip", args));
    ip("make the network namespace", &["netns", "add", &name])?;
    ip(
        "make the pair of interfaces",
        &[
            "link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &name,
        ],
    )?;
    let host = format!("{}/30", pair.host);
    let inner = format!("{}/30", pair.inner);
    let via = pair.host.to_string();
    ip("address the host's end", &["addr", "add", &host, "dev", &name])?;
    ip("bring up the host's end", &["link", "set", &name, "up"])?;
    let inside = |args: &[&str]| ip("set up the cluster's network", &[&["-n", &name], args].concat());
    inside(&["link", "set", "lo", "up"])?;
    inside(&["addr", "add", &inner, "dev", "eth0"])?;
    inside(&["link", "set", "eth0", "up"])?;
    // Service addresses are rewritten after routing: they need some route to begin with.
    inside(&["route", "add", "default", "via", &via])?;
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
    run(
        "let the cluster's node forward between its pods",
        &mut cmd(
            "nsenter",
            [&format!("--net=/run/netns/{name}"), "--", "sh", "-c", forward],
        ),
    )?;
    Ok(pair)
}

/// Removes namespace and pair; what is not there is no error.
pub fn remove(paths: &ClusterPaths) {
    let name = paths.netns();
    succeeds(&mut cmd("ip", ["link", "delete", &name]));
    succeeds(&mut cmd("ip", ["netns", "delete", &name]));
}

/// Whether anything of it is there.
pub fn exists(paths: &ClusterPaths) -> bool {
    let name = paths.netns();
    std::path::Path::new("/run/netns").join(&name).exists()
        || std::path::Path::new("/sys/class/net").join(&name).exists()
}

/// A /30 that no interface uses, starting at a place that depends on `id`.
fn free_pair(id: &str, used: &str) -> Result<Pair> {
    const BLOCKS: u32 = 1 << 15;
    let start = u32::from_str_radix(id, 16).context("a cluster's id is hexadecimal")? % BLOCKS;
    let taken: Vec<u32> = used
        .split_ascii_whitespace()
        .filter_map(|word| word.split('/').next()?.parse::<Ipv4Addr>().ok())
        .map(|address| u32::from(address) >> 2)
        .collect();
    for offset in 0..BLOCKS {
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (((start + offset) % BLOCKS) << 2);
        if !taken.contains(&(base >> 2)) {
            return Ok(Pair {
                host: Ipv4Addr::from(base + 1),
                inner: Ipv4Addr::from(base + 2),
            });
        }
    }
    bail!("every address of 198.18.0.0/15 is in use: end a cluster that is no longer needed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_not_given_again() {
        let first = free_pair("00000001", "").expect("free");
        assert_eq!(first.host, Ipv4Addr::new(198, 18, 0, 5));
        assert_eq!(first.inner, Ipv4Addr::new(198, 18, 0, 6));
        let used = "7: hf-x    inet 198.18.0.5/30 scope global hf-x";
        let second = free_pair("00000001", used).expect("free");
        assert_eq!(second.host, Ipv4Addr::new(198, 18, 0, 9));
    }
}
