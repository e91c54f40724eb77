//! One file per command. Each takes its arguments, writes its report to standard output, and returns
//! a [`CommandStatus`](levada_client::command::CommandStatus).

mod admin;
pub(crate) mod classify;
pub(crate) mod completions;
pub(crate) mod configuration;
pub(crate) mod default_config;
pub(crate) mod demo;
pub(crate) mod dns;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod handoff_backend;
pub(crate) mod health;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod policies;
pub(crate) mod purge;
pub(crate) mod reload;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod servers;
pub(crate) mod sign;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod top;
pub(crate) mod upgrade;
pub(crate) mod validate;
pub(crate) mod warm;
