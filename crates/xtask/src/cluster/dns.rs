//! A small DNS server for the cluster: Services by name, nothing else.
//!
//! Promise: `<service>.<namespace>.svc.cluster.local` resolves to the Service's address, a
//! headless one to its ready endpoints; every other name is answered at once with "no such name".
//! There is nothing to forward to: the cluster has no way out.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::net::UdpSocket;

const ZONE: [&str; 3] = ["svc", "cluster", "local"];
const TYPE_A: u16 = 1;
const TYPE_ANY: u16 = 255;
const NO_SUCH_NAME: u8 = 3;
const SECONDS_VALID: u32 = 5;

/// Answers questions at `listen` until it fails.
pub async fn serve(client: Client, listen: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(listen)
        .await
        .with_context(|| format!("the DNS server cannot listen at {listen}"))?;
    let (services, service_writer) = reflector::store::<Service>();
    let (slices, slice_writer) = reflector::store::<EndpointSlice>();
    let follow_services = watcher(Api::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(service_writer)
        .for_each(|_| std::future::ready(()));
    let follow_slices = watcher(Api::all(client), watcher::Config::default())
        .default_backoff()
        .reflect(slice_writer)
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = follow_services => {}
        () = follow_slices => {}
        failed = answer_all(&socket, &services, &slices) => failed?,
    }
    anyhow::bail!("a watch ended")
}

async fn answer_all(
    socket: &UdpSocket,
    services: &Store<Service>,
    slices: &Store<EndpointSlice>,
) -> Result<()> {
    let mut question = [0_u8; 1500];
    loop {
        let (length, from) = socket.recv_from(&mut question).await?;
        let find = |name: &[String]| addresses(services, slices, name);
        if let Some(reply) = answer(&question[..length], find) {
            socket.send_to(&reply, from).await?;
        }
    }
}

/// The addresses of the Service that `name` names; none if there is no such Service.
fn addresses(
    services: &Store<Service>,
    slices: &Store<EndpointSlice>,
    name: &[String],
) -> Option<Vec<Ipv4Addr>> {
    let [service, namespace, zone @ ..] = name else {
        return None;
    };
    if zone != ZONE {
        return None;
    }
    let found = services.get(&ObjectRef::new(service).within(namespace))?;
    let spec = found.spec.as_ref()?;
    match spec.cluster_ip.as_deref() {
        Some("None") => Some(ready(slices, service, namespace)),
        Some(address) => Some(address.parse().into_iter().collect()),
        None => None,
    }
}

/// The ready endpoints of a headless Service.
fn ready(slices: &Store<EndpointSlice>, service: &str, namespace: &str) -> Vec<Ipv4Addr> {
    let of_service = |slice: &EndpointSlice| {
        let labels = slice.metadata.labels.as_ref();
        let named = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
        slice.metadata.namespace.as_deref() == Some(namespace) && named.is_some_and(|name| name == service)
    };
    let mut found: Vec<Ipv4Addr> = slices
        .state()
        .iter()
        .filter(|slice| of_service(slice))
        .flat_map(|slice| &slice.endpoints)
        .filter(|endpoint| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                != Some(false)
        })
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|address| address.parse().ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    // What fits into one plain datagram.
    found.truncate(20);
    found
}

/// The reply to `query`; none if it is no question at all.
fn answer(query: &[u8], find: impl Fn(&[String]) -> Option<Vec<Ipv4Addr>>) -> Option<Vec<u8>> {
    let header = query.get(..12)?;
    let is_reply = header[2] & 0x80 != 0;
    if is_reply || header[4..6] != [0, 1] {
        return None;
    }
    let (name, after) = read_name(query, 12)?;
    let question = query.get(12..after + 4)?;
    let kind = u16::from_be_bytes([query[after], query[after + 1]]);
    let found = find(&name);
    let code = if found.is_some() { 0 } else { NO_SUCH_NAME };
    let wanted = matches!(kind, TYPE_A | TYPE_ANY);
    let found = found.filter(|_| wanted).unwrap_or_default();
    let mut reply = Vec::with_capacity(query.len() + 16 * found.len());
    reply.extend_from_slice(&header[..2]);
    // A reply, with authority; recursion is said to be there, or some resolvers ask on.
    reply.extend_from_slice(&[0x84 | (header[2] & 0x01), 0x80 | code]);
    reply.extend_from_slice(&[0, 1]);
    reply.extend_from_slice(&u16::try_from(found.len()).ok()?.to_be_bytes());
    reply.extend_from_slice(&[0; 4]);
    reply.extend_from_slice(question);
    for address in found {
        // The name is that of the question, at byte 12.
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        reply.extend_from_slice(&SECONDS_VALID.to_be_bytes());
        reply.extend_from_slice(&[0, 4]);
        reply.extend_from_slice(&address.octets());
    }
    Some(reply)
}

/// The labels of the name at `at`, in lower case, and where it ends.
fn read_name(message: &[u8], mut at: usize) -> Option<(Vec<String>, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels, at)),
            // A pointer has no place in a question.
            64.. => return None,
            _ => {}
        }
        let label = std::str::from_utf8(message.get(at..at + length)?).ok()?;
        labels.push(label.to_ascii_lowercase());
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).expect("short"));
            query.extend_from_slice(label.as_bytes());
        }
        query.push(0);
        query.extend_from_slice(&kind.to_be_bytes());
        query.extend_from_slice(&[0, 1]);
        query
    }

    fn find(name: &[String]) -> Option<Vec<Ipv4Addr>> {
        (name.join(".") == "s3.a.svc.cluster.local").then(|| vec![Ipv4Addr::new(10, 96, 1, 2)])
    }

    #[test]
    fn a_service_is_answered_with_its_address() {
        let reply = answer(&question("S3.a.svc.cluster.local", TYPE_A), find).expect("a reply");
        assert_eq!(reply[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert_eq!(reply[reply.len() - 4..], [10, 96, 1, 2]);
    }

    #[test]
    fn another_kind_of_record_is_empty_and_another_name_is_unknown() {
        let reply = answer(&question("s3.a.svc.cluster.local", 28), find).expect("a reply");
        assert_eq!(reply[3..8], [0x80, 0, 1, 0, 0]);
        let reply = answer(&question("example.com", TYPE_A), find).expect("a reply");
        assert_eq!(reply[3] & 0x0f, NO_SUCH_NAME);
    }

    #[test]
    fn nonsense_gets_no_reply() {
        assert!(answer(&[], find).is_none());
        assert!(answer(&[0; 12], find).is_none());
        let mut cut = question("s3.a", TYPE_A);
        cut.truncate(cut.len() - 3);
        assert!(answer(&cut, find).is_none());
        let mut pointer = question("s3.a", TYPE_A);
        pointer[12] = 0xc0;
        assert!(answer(&pointer, find).is_none());
    }
}
