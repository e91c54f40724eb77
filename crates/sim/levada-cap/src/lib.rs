//! WWW10's system (Casalicchio and Colajanni): a Web switch before a cluster of servers that offer
//! static, dynamic and secure pages, and clients in sessions.
//!
//! levada-sim runs a scenario with a `[cap]` table here instead of in OSDI'02's world. The model has a
//! server's parts (CPU, memory, disk, database, network card) and the latency of whole pages, but no
//! network in between.
//!
//! [`Settings`] has all parameters of a run, with the paper's values as defaults; `world` is the life
//! of a request; the other modules are its stations.

mod distribution;
mod documents;
mod report;
pub mod resource;
mod server;
mod session;
mod settings;
mod world;

use std::ops::ControlFlow;

use levada_cache::eviction::EvictionEntry;
use levada_outcome::{Outcome, Progress};
use levada_policy::Policy;

pub use distribution::{InverseGaussian, Lognormal, Pareto};
pub use settings::{
    Database, Dispatch, Documents, LoadMeasure, MeasurementWindow, Mix, Sessions, Settings, Ssl,
    Switch, WebServerHardware,
};

/// Runs a cluster of `servers`, whose switch chooses by `policy` and whose caches evict by `eviction`.
pub fn run(
    settings: &Settings,
    servers: usize,
    policy: Box<dyn Policy>,
    eviction: &EvictionEntry,
    seed: u64,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Outcome {
    world::SessionWorld::new(settings, servers, policy, eviction, seed).run(watch)
}

/// The problems of the `[cap]` table: the key of each, and the remedy.
pub fn check(settings: &Settings) -> Vec<(&'static str, &'static str)> {
    let mut problems = Vec::new();
    let mut add_if = |wrong: bool, key: &'static str, remedy: &'static str| {
        if wrong {
            problems.push((key, remedy));
        }
    };
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let Settings { sessions, documents, hardware, ssl, switch, window, mix, .. } = settings;
    for (key, value) in [
        ("cap.clients_per_second", settings.clients_per_second),
        ("cap.sessions.pages.mu", sessions.pages.mu),
        ("cap.sessions.pages.lambda", sessions.pages.lambda),
        ("cap.sessions.think.alpha", sessions.think.alpha),
        ("cap.sessions.think.k", sessions.think.k),
        ("cap.sessions.objects.alpha", sessions.objects.alpha),
        ("cap.sessions.objects.k", sessions.objects.k),
        ("cap.documents.body.sigma", documents.body.sigma),
        ("cap.documents.tail.alpha", documents.tail.alpha),
        ("cap.documents.tail.k", documents.tail.k),
    ] {
        add_if(!positive(value), key, "it must be a number above 0");
    }
    for (key, value) in
        [("cap.documents.body.mu", documents.body.mu), ("cap.documents.zipf", documents.zipf)]
    {
        add_if(!value.is_finite(), key, "it must be a finite number");
    }
    for (key, value) in [
        ("cap.sessions.most_objects", u64::from(sessions.most_objects)),
        ("cap.documents.count", u64::from(documents.count)),
        ("cap.documents.largest", u64::from(documents.largest)),
        ("cap.hardware.memory_rate", hardware.memory_rate),
        ("cap.hardware.disk_rate", hardware.disk_rate),
        ("cap.hardware.nic_rate", hardware.nic_rate),
        ("cap.ssl.rsa_rate", ssl.rsa_rate),
        ("cap.ssl.cipher_rate", ssl.cipher_rate),
        ("cap.ssl.hash_rate", ssl.hash_rate),
        ("cap.ssl.record", ssl.record),
    ] {
        add_if(value == 0, key, "it must be at least 1");
    }
    for (key, time) in [
        ("cap.hardware.cpu_slice", hardware.cpu_slice),
        ("cap.hardware.nic_slice", hardware.nic_slice),
        ("cap.switch.gather", switch.gather),
        ("cap.window.measure", window.measure),
    ] {
        add_if(time.0.is_zero(), key, "it must be a time above 0, such as \"1s\"");
    }
    let shares = mix.shares();
    let usable = shares.iter().all(|(_, share)| share.is_finite() && *share >= 0.0)
        && shares.iter().any(|(_, share)| *share > 0.0);
    add_if(!usable, "cap.mix", "shares are numbers from 0, and one must be above 0");
    let length = (window.warm_up.0 + window.measure.0 + window.drain.0).as_secs_f64();
    add_if(
        settings.clients_per_second * length > MOST_SESSIONS,
        "cap.window.measure",
        "in this time more than 50 million clients would come: shorten it or lower \
         `cap.clients_per_second`",
    );
    problems
}

/// Limits an overloaded run, in which no client leaves, so that it ends by its window and not for
/// lack of memory.
const MOST_SESSIONS: f64 = 5e7;
