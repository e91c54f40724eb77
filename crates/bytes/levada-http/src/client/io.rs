//! The stream under a connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use levada_net::pipe::Pipe;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// TCP, TLS over it, or a Unix socket.
pub enum Io {
    /// TCP.
    Plain(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    /// Whether the bytes of a body come as they are, so that the system can move them by itself.
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Moves at most `most` bytes that have come into an empty pipe; 0 at the end.
    pub(super) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &Pipe,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            let filled = match self {
                Self::Plain(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_io(Interest::READABLE, || pipe.fill(stream, most))
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_io(Interest::READABLE, || pipe.fill(stream, most))
                }
                Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            };
            match filled {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                filled => return Poll::Ready(filled),
            }
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use bytes::Bytes;
    use http::{HeaderMap, Method, Uri};
    use http_body_util::Empty;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::ServerName};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::client::{UpstreamConnection, UpstreamRequest};

    /// A client and a server that trust each other.
    fn parties() -> (TlsConnector, TlsAcceptor) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        (TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server)))
    }

    #[tokio::test]
    async fn body_until_the_end_of_tls_ends_with_its_close_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for said in [true, false] {
            let (connector, acceptor) = parties();
            let server = async {
                let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.unwrap();
                stream.flush().await.unwrap();
                if said {
                    stream.shutdown().await.unwrap();
                }
            };
            let client = async {
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let name = ServerName::try_from("a.test").unwrap();
                let stream = connector.connect(name, stream).await.unwrap();
                let mut link = UpstreamConnection::new(Io::Tls(Box::new(stream)), 100);
                let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
                let request =
                    UpstreamRequest { method: &Method::GET, uri: &uri, headers: &headers };
                let (body, timeout) = (Empty::<Bytes>::new(), Duration::from_secs(10));
                link.ask(&request, body, timeout, || false, |_, _| {}).await.unwrap();
                let mut body = Vec::new();
                loop {
                    match std::future::poll_fn(|cx| link.poll_frame(cx)).await {
                        Some(Ok(frame)) => body.extend_from_slice(&frame.into_data().unwrap()),
                        Some(Err(_)) => break (body, false),
                        None => break (body, true),
                    }
                }
            };
            let ((), (body, whole)) = tokio::join!(server, client);
            // A third party on the path can end the connection, but cannot send TLS's close.
            assert_eq!((body.as_slice(), whole), (&b"hello"[..], said));
        }
    }
}
