//! The origin: it counts the requests for each object, and has a new version of one after [`Origin::publish`].

use std::{cell::RefCell, collections::HashMap, convert::Infallible, net::TcpListener, rc::Rc};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::Body;
use levada_testbed::cluster::server::{accept, body, converse};
use levada_types::Key;
use tokio::task::spawn_local;

use super::objects::Target;

/// The origin and its counts.
#[derive(Default)]
pub(super) struct Origin {
    objects: RefCell<HashMap<String, AtOrigin>>,
}

/// An object as the origin knows it.
#[derive(Default)]
struct AtOrigin {
    asked: u64,
    version: u64,
}

impl Origin {
    /// Serves at a listener until the runtime ends.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub(super) fn start(listener: TcpListener) -> anyhow::Result<Rc<Self>> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let origin = Rc::<Self>::default();
        let serving = origin.clone();
        spawn_local(accept(listener, move |stream, _| {
            let origin = serving.clone();
            spawn_local(converse(stream, move |request| {
                std::future::ready(origin.answer(&request))
            }));
        }));
        Ok(origin)
    }

    /// Begins the next version of an object; returns its entity tag.
    pub(super) fn publish(&self, path: &str) -> String {
        let mut objects = self.objects.borrow_mut();
        let object = objects.entry(path.to_owned()).or_default();
        object.version += 1;
        object.tag()
    }

    /// The requests so far for objects whose paths begin with this.
    pub(super) fn asked(&self, prefix: &str) -> u64 {
        let objects = self.objects.borrow();
        objects.iter().filter(|(path, _)| path.starts_with(prefix)).map(|(_, one)| one.asked).sum()
    }

    fn answer<T>(
        &self,
        request: &Request<T>,
    ) -> http::Result<Response<impl Body<Data = Bytes, Error = Infallible> + use<T>>> {
        let path = request.uri().path();
        let Some(target) = Target::parse(path) else {
            let none = body(Key(0), 0..0, drop);
            return Response::builder().status(StatusCode::NOT_FOUND).body(none);
        };
        let mut objects = self.objects.borrow_mut();
        let object = objects.entry(path.to_owned()).or_default();
        object.asked += 1;
        let tag = object.tag();
        let known = request.headers().get(header::IF_NONE_MATCH);
        let unchanged = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let mut response = Response::builder()
            .header(header::ETAG, tag)
            .header(header::CACHE_CONTROL, target.kind.cache_control());
        if unchanged {
            let none = body(Key(0), 0..0, drop);
            return response.status(StatusCode::NOT_MODIFIED).body(none);
        }
        response = response.header(header::CONTENT_LENGTH, target.size);
        response.body(body(Key::of(path.as_bytes()), 0..target.size, drop))
    }
}

impl AtOrigin {
    fn tag(&self) -> String {
        format!("\"{}\"", self.version)
    }
}
