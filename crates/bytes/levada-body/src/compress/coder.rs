//! A body on its way through an encoder.
//!
//! Bytes are gathered while their source has more at once, and coded on a worker's thread. When the source
//! pauses, everything so far is flushed: a slow stream is held up no longer than [`FLUSH_DELAY`], and a body
//! that comes quickly is not cut into small blocks, which would cost a part of its compression.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Sleep, sleep};

use crate::compress::{
    coding::Coding,
    encoder::{Encoder, Then},
    settings::Levels,
    workers::{Place, Workers},
};

/// Bytes that are coded in one go.
const PORTION: usize = 128 << 10;

/// How long bytes wait for more to be coded with: too short to be noticed, long enough for the rest of a packet train.
const FLUSH_DELAY: Duration = Duration::from_millis(10);

/// Codes one body.
pub struct Coder {
    coding: Coding,
    /// Given back as soon as all is coded: the client may still read.
    place: Option<Place>,
    workers: Arc<Workers>,
    state: CoderState,
    /// Not given to the encoder yet.
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    /// The encoder may hold bytes back.
    dirty: bool,
    ended: bool,
    linger: Option<Pin<Box<Sleep>>>,
}

enum CoderState {
    Idle(Box<Encoder>),
    Working(Pin<Box<dyn Future<Output = Option<Worked>> + Send>>),
    Over,
}

/// The result of a worker.
struct Worked {
    encoder: Box<Encoder>,
    coded: io::Result<Vec<u8>>,
    read: usize,
}

/// A body could not be coded to its end.
#[derive(Debug)]
pub enum CoderError<E> {
    /// Its source broke off.
    Source(E),
    /// The encoder failed, which only a lack of memory explains.
    Encoder,
}

impl<E: fmt::Display> fmt::Display for CoderError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Encoder => f.write_str("the body could not be compressed"),
        }
    }
}

impl Coder {
    /// A coder for one body, at the level that the load at its place leaves. `None` when there is no memory for
    /// the encoder.
    pub fn new(coding: Coding, levels: &Levels, place: Place) -> Option<Self> {
        let encoder = Encoder::new(coding, levels, place.load).ok()?;
        let workers = place.workers().clone();
        workers.metrics.begun(coding);
        Some(Self {
            coding,
            place: Some(place),
            workers,
            state: CoderState::Idle(Box::new(encoder)),
            gathered: Vec::new(),
            gathered_bytes: 0,
            dirty: false,
            ended: false,
            linger: None,
        })
    }

    /// Whether all of the coded body has been returned.
    pub fn is_over(&self) -> bool {
        matches!(self.state, CoderState::Over)
    }

    /// The next coded bytes of the body that `source` reads; `None` at its end.
    pub fn poll<E>(
        &mut self,
        cx: &mut Context<'_>,
        mut source: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, E>>>,
    ) -> Poll<Option<Result<Bytes, CoderError<E>>>> {
        loop {
            if matches!(self.state, CoderState::Over) {
                return Poll::Ready(None);
            }
            if let CoderState::Working(work) = &mut self.state {
                let worked = ready!(work.as_mut().poll(cx));
                match self.take(worked) {
                    Ok(coded) if coded.is_empty() => continue,
                    Ok(coded) => return Poll::Ready(Some(Ok(coded))),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
            match self.gather(cx, &mut source) {
                Ok(true) => {}
                Ok(false) => {
                    self.set_busy(false);
                    return Poll::Pending;
                }
                Err(error) => {
                    self.state = CoderState::Over;
                    return Poll::Ready(Some(Err(CoderError::Source(error))));
                }
            }
        }
    }

    /// Reads until there is a portion, or the source pauses. Returns whether a worker has started.
    fn gather<E>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, E>>>,
    ) -> Result<bool, E> {
        while !self.ended && self.gathered_bytes < PORTION {
            match source(cx) {
                Poll::Ready(Some(piece)) => {
                    let piece = piece?;
                    self.gathered_bytes += piece.len();
                    self.gathered.push(piece);
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Ok(self.pause(cx)),
            }
        }
        self.work(if self.ended { Then::Finish } else { Then::Go });
        Ok(true)
    }

    /// The source has nothing more for now. Returns whether a worker has started.
    fn pause(&mut self, cx: &mut Context<'_>) -> bool {
        if self.gathered_bytes == 0 && !self.dirty {
            return false;
        }
        let linger = self.linger.get_or_insert_with(|| Box::pin(sleep(FLUSH_DELAY)));
        if linger.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.work(Then::Flush);
        true
    }

    fn work(&mut self, then: Then) {
        let CoderState::Idle(mut encoder) = std::mem::replace(&mut self.state, CoderState::Over)
        else {
            return;
        };
        self.linger = None;
        self.set_busy(true);
        self.dirty = then == Then::Go;
        let (pieces, read) = (std::mem::take(&mut self.gathered), self.gathered_bytes);
        self.gathered_bytes = 0;
        let work = move || {
            let coded = code(&mut encoder, &pieces, then);
            Worked { encoder, coded, read }
        };
        self.state = CoderState::Working(Box::pin(Workers::run(self.workers.clone(), work)));
    }

    fn set_busy(&mut self, is_busy: bool) {
        if let Some(place) = &mut self.place {
            place.set_busy(is_busy);
        }
    }

    /// Takes what a worker has done.
    fn take<E>(&mut self, worked: Option<Worked>) -> Result<Bytes, CoderError<E>> {
        self.state = CoderState::Over;
        self.set_busy(false);
        let Some(Worked { encoder, coded: Ok(coded), read }) = worked else {
            return Err(CoderError::Encoder);
        };
        self.workers.metrics.coded(self.coding, read, coded.len());
        if !self.ended || self.gathered_bytes > 0 {
            self.state = CoderState::Idle(encoder);
        } else {
            self.place = None;
        }
        Ok(coded.into())
    }
}

/// Codes several pieces in one go.
fn code(encoder: &mut Encoder, pieces: &[Bytes], then: Then) -> io::Result<Vec<u8>> {
    match pieces {
        [] => encoder.code(b"", then),
        [only] => encoder.code(only, then),
        _ => encoder.code(&pieces.concat(), then),
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read};

    use levada_observe::metrics::Registry;

    use super::*;
    use crate::compress::{metrics::CompressMetrics, settings::CompressSettings};

    fn coder(workers: &Arc<Workers>) -> Coder {
        let levels = CompressSettings::default().levels;
        Coder::new(Coding::Gzip, &levels, workers.admit_copy().unwrap()).unwrap()
    }

    async fn next(
        coder: &mut Coder,
        mut source: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, ()>>>,
    ) -> Option<Result<Bytes, CoderError<()>>> {
        poll_fn(|cx| coder.poll(cx, &mut source)).await
    }

    #[tokio::test]
    async fn source_that_pauses_is_flushed() {
        let workers = Workers::new(1, 0, CompressMetrics::registered(&mut Registry::default()));
        let mut coder = coder(&workers);
        let mut first = Some(Bytes::from_static(b"data: 1\n\n"));
        let coded = next(&mut coder, |_| match first.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => Poll::Pending,
        });
        let coded = coded.await.unwrap().unwrap();
        let mut text = [0; 9];
        flate2::read::GzDecoder::new(&*coded).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"data: 1\n\n");
    }

    #[tokio::test]
    async fn stream_that_waits_for_its_source_does_not_lower_levels() {
        let workers = Workers::new(1, 4, CompressMetrics::registered(&mut Registry::default()));
        let mut streams: Vec<Coder> = (0..4).map(|_| coder(&workers)).collect();
        assert_eq!(workers.admit_copy().unwrap().load, 1.0);
        for stream in &mut streams {
            let mut first = Some(Bytes::from_static(b"data: 1\n\n"));
            let coded = next(stream, |_| {
                first.take().map_or(Poll::Pending, |it| Poll::Ready(Some(Ok(it))))
            });
            coded.await.unwrap().unwrap();
            let quiet: Poll<Option<Result<Bytes, CoderError<()>>>> =
                poll_fn(|cx| Poll::Ready(stream.poll(cx, |_| Poll::Pending))).await;
            assert!(quiet.is_pending());
        }
        assert_eq!((workers.bodies(), workers.admit_copy().unwrap().load), (4, 0.0));
    }

    #[tokio::test]
    async fn body_that_breaks_off_is_not_ended() {
        let workers = Workers::new(1, 0, CompressMetrics::registered(&mut Registry::default()));
        let mut coder = coder(&workers);
        let mut pieces = vec![Err(()), Ok(Bytes::from_static(b"half"))];
        let broken = loop {
            match next(&mut coder, |_| Poll::Ready(pieces.pop())).await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(broken, Some(Err(CoderError::Source(())))));
        drop(coder);
        assert_eq!(workers.bodies(), 0);
    }

    #[tokio::test]
    async fn long_body_is_coded_in_portions() {
        let workers = Workers::new(2, 0, CompressMetrics::registered(&mut Registry::default()));
        let mut coder = coder(&workers);
        let (mut left, mut coded) = (100, Vec::new());
        let piece = Bytes::from("0123456789".repeat(1000));
        while let Some(part) = next(&mut coder, |_| {
            left -= 1;
            Poll::Ready((left >= 0).then(|| Ok(piece.clone())))
        })
        .await
        {
            coded.extend(part.unwrap());
        }
        assert!(coder.is_over() && workers.bodies() == 0);
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&*coded).read_to_end(&mut text).unwrap();
        assert_eq!(text, piece.repeat(100));
    }
}
