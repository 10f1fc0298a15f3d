//! The smallest HTTP/1.1 client that shows when a server closes the connection.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// A TLS connection that trusts one bundle and nothing else.
pub struct Client(TlsStream<TcpStream>);

impl Client {
    /// Connects as `holdfast.ns.svc`.
    pub async fn connect(address: SocketAddr, bundle: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.expect("pem")).expect("an authority");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("holdfast.ns.svc").expect("a name");
        let stream = TcpStream::connect(address).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok(Self(connector.connect(name, stream).await?))
    }

    /// Posts; an empty token sends no header.
    pub async fn post(&mut self, path: &str, token: &str, body: &[u8]) -> Result<(u16, String)> {
        let authorization = if token.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {token}\r\n")
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: holdfast\r\n{authorization}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(head.as_bytes()).await?;
        // A server that refuses early stops reading; its answer counts, not our broken write.
        let sent = async {
            self.0.write_all(body).await?;
            self.0.flush().await
        };
        let sent = sent.await;
        match answered(&mut self.0).await {
            Ok(answer) => Ok(answer),
            Err(error) => sent.and(Err(error)),
        }
    }

    /// Waits for the server to close the connection.
    pub async fn closed(&mut self) -> Result<()> {
        let mut byte = [0];
        match tokio::time::timeout(Duration::from_secs(5), self.0.read(&mut byte)).await {
            Ok(Ok(0) | Err(_)) => Ok(()),
            Ok(Ok(_)) => Err(Error::other("the server sent something")),
            Err(_) => Err(Error::from(ErrorKind::TimedOut)),
        }
    }
}

/// Gets a path over plain HTTP.
pub async fn get_plain(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: holdfast\r\n\r\n").as_bytes())
        .await?;
    answered(&mut stream).await
}

/// The JSON of an answer.
pub fn answer(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("an answer in JSON")
}

async fn answered(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(u16, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let status = status.ok_or_else(|| Error::other("no status"))?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
