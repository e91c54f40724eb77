//! The commands of the program, run as their users run them.

mod admin_socket;
mod chart;
mod convert;
mod dns;
mod doctor;
mod examples;
mod explain;
mod generated;
mod get;
mod init;
mod kubernetes;
mod logs;
mod manual;
mod openapi;
mod purge;
mod refused;
mod report;
mod run;
mod run_as;
mod shell_blocks;
mod sign;
mod status;
mod support;
mod sync;
mod telemetry;
mod warm;
