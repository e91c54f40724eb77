//! Configurations of HAProxy, and what Levada says in their place.
//!
//! ```text
//! lines ──► sections ──► global, cache, userlist ──► keys of the node
//!              │
//!              ├─ frontend, listen ──► hosts that conditions name: a site each
//!              │                          │ the rules, in HAProxy's order
//!              └─ backend ────────────────┤ conditions as matchers and expressions
//!                                         ▼
//!                                    Decisions: routes of which the first counts
//! ```
//!
//! HAProxy runs all rules whose conditions hold until one answers or names a backend; a node takes one route.
//! `levada_conversion::decisions` makes the one of the other. A condition on the host is decided for each site.

mod condition;
mod files;
mod hosts;
mod parse;
mod sample;
mod servers;
