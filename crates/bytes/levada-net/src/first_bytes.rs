//! Looks at the first bytes of a connection without taking them.

use std::{
    io::{self, ErrorKind},
    mem::MaybeUninit,
};

use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream};

/// The bytes that have come when these are more than `seen`; as many as before: no more will come. `bytes` must
/// have room for more than `seen`.
///
/// # Errors
/// If the connection fails.
pub async fn beyond(stream: &TcpStream, seen: usize, bytes: &mut [u8]) -> io::Result<usize> {
    if seen > 0 {
        wait_beyond(stream, seen).await?;
    }
    stream.peek(bytes).await
}

/// Returns when more than `seen` bytes are there, or no more will come. The system reports the arrival of bytes
/// once, and the runtime forgets a report when an attempt says that it would block: nothing runs meanwhile.
async fn wait_beyond(stream: &TcpStream, seen: usize) -> io::Result<()> {
    loop {
        let report = stream.ready(Interest::READABLE).await?;
        let look = || {
            let there = SockRef::from(stream).peek(&mut vec![MaybeUninit::uninit(); seen + 1])?;
            let is_news = there > seen || report.is_read_closed();
            if is_news { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
        };
        match stream.try_io(Interest::READABLE, look) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            looked => return looked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        task::{Context, Wake},
        time::Duration,
    };

    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_are_shown_and_stay() {
        let (mut near, far) = pair().await;
        let mut bytes = [0; 8];
        near.write_all(b"ab").await.unwrap();
        assert_eq!(beyond(&far, 0, &mut bytes).await.unwrap(), 2);
        near.write_all(b"cd").await.unwrap();
        assert_eq!(beyond(&far, 2, &mut bytes).await.unwrap(), 4);
        assert_eq!(bytes[..4], *b"abcd");
        near.shutdown().await.unwrap();
        assert_eq!(beyond(&far, 4, &mut bytes).await.unwrap(), 4, "no more will come");
    }

    #[tokio::test]
    async fn nothing_runs_while_the_rest_is_missing() {
        let (mut near, far) = pair().await;
        let mut bytes = [0; 8];
        near.write_all(b"ab").await.unwrap();
        assert_eq!(beyond(&far, 0, &mut bytes).await.unwrap(), 2);
        let wakes = Arc::<Wakes>::default();
        let waker = wakes.clone().into();
        let mut waiting = pin!(beyond(&far, 2, &mut bytes));
        for _ in 0..20 {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // The report of the bytes that are there may come late.
        assert!(wakes.0.load(Relaxed) <= 1, "{wakes:?}");
        near.write_all(b"c").await.unwrap();
        assert_eq!(waiting.await.unwrap(), 3);
    }
}
