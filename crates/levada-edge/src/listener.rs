//! Listening sockets: how they are opened and how connections are taken from them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::{
    connection::{self, Entrance},
    dormant,
    node::{Node, StartError},
    stop::Stop,
};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 4096;

/// Opens a listening socket. With `share`, several sockets may listen on one address, one per worker,
/// and the kernel spreads the connections over them.
pub(crate) fn open(address: SocketAddr, share: bool) -> Result<std::net::TcpListener, StartError> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if share {
            socket.set_reuse_port(true)?;
        }
        socket.set_nonblocking(true)?;
        // Its connections inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|why| StartError::Listen { address, why })
}

/// Takes connections until the node stops.
pub(crate) async fn accept(
    node: Arc<Node>,
    listener: TcpListener,
    entrance: Arc<Entrance>,
    stop: Stop,
) {
    let places = &entrance.places;
    let watch = dormant::watch(&node, entrance.dormant_retries);
    loop {
        // At the bound, connections wait in the kernel's queue, where they cost nothing here.
        let next = async {
            let place = places.clone().acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = stop.begun() => return,
        };
        match accepted {
            Ok((stream, client)) => {
                let (node, entrance, stop) = (node.clone(), entrance.clone(), stop.clone());
                let (stream, seat) = dormant::seat(stream, client.ip(), watch.as_ref());
                let task = tokio::spawn(async move {
                    let cut = stop.clone();
                    tokio::select! {
                        biased;
                        () = connection::serve(node, &entrance, stream, client.ip(), stop) => {}
                        () = cut.cut() => {}
                    }
                    drop(place);
                });
                seat.about.is_served_by(&task);
            }
            // Out of file descriptors, mostly: it passes when connections end.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_do_not_wait_to_fill_segments() {
        let listener = open(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let _client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
